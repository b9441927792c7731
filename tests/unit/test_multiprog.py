"""--multi-prog files: the example of man srun, transcript 037, and what a 22.05 made of others."""

from __future__ import annotations

import pytest

from gsched.multiprog import MultiProgError, multi_prog


def shown(text: str, ntasks: int) -> list[str]:
    return [" ".join(argv) for argv in multi_prog(text, ntasks, "m.conf")]


def test_the_example_of_the_man_page() -> None:
    text = "###\n# silly\n4-6\t hostname\n1,7\t echo  task:%t\n0,2-3\t echo  offset:%o\n"
    assert shown(text, 8) == [
        "echo offset:0",
        "echo task:1",
        "echo offset:1",
        "echo offset:2",
        "hostname",
        "hostname",
        "hostname",
        "echo task:7",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "0 echo zero %t\n1-2 echo other %t %o",
            ["echo zero 0", "echo other 1 0", "echo other 2 1"],
        ),
        ("# c\n0 echo a %t %o %%\n* echo b %t %o\n", ["echo a 0 0 ", "echo b 1 1", "echo b 2 2"]),
        ("0 echo a \\\n b c\n1 echo\n", ["echo a b c", "echo"]),
        ("0-1 echo b %t %x %", ["echo b 0  ", "echo b 1  "]),
    ],
)
def test_lines(text: str, expected: list[str]) -> None:
    assert shown(text, len(expected)) == expected


def test_quotes() -> None:
    assert multi_prog("0 bash -c 'echo $X %t'", 1) == [["bash", "-c", "echo $X %t"]]
    # Double quotes are letters like others.
    assert multi_prog('0 echo "a  b" %t', 1) == [["echo", '"a', 'b"', "0"]]
    assert multi_prog("0 echo a\\ b", 1) == [["echo", "a b"]]


@pytest.mark.parametrize(
    ("text", "ntasks", "sentences"),
    [
        ("0 echo a\n", 2, "Configuration file m.conf invalid, no record for task id 1"),
        ("", 1, "Configuration file m.conf invalid, no record for task id 0"),
        (
            "0 echo a\n0 echo b\n1 echo c\n",
            2,
            "Duplicate record for task 0\nLine 2 of configuration file m.conf invalid",
        ),
        (
            "0-1 echo a\n5 echo x\n",
            2,
            "Invalid task id, 5 >= ntasks\nLine 2 of configuration file m.conf invalid",
        ),
        (
            "x echo a\n",
            1,
            "Invalid task range specification (x)\nLine 1 of configuration file m.conf invalid",
        ),
        (
            "1-0 echo a\n0-1 echo b",
            2,
            "Invalid task range, 1-0\nLine 1 of configuration file m.conf invalid",
        ),
        ("0\n", 1, "Line 1 of configuration file m.conf invalid"),
    ],
)
def test_refusals(text: str, ntasks: int, sentences: str) -> None:
    with pytest.raises(MultiProgError) as caught:
        multi_prog(text, ntasks, "m.conf")
    assert str(caught.value) == sentences
