#!/bin/sh
# Runs the tests of a C program with one that is built with AddressSanitizer and
# UndefinedBehaviorSanitizer.
#
#     tools/sanitize-program.sh stepd|client [pytest arguments]
#
# stepd: whole lives of steps, hostile tasks, nonsense from clients. client: the moving of the streams
# of steps. Needs gcc with libasan, and a Python (PYTHON, default python3) in which the project is
# installed.
set -eu

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
# The standard error of a client is a test's to look at, and a supervisor has none: what is found
# goes into files here.
work=$(mktemp -d)
chmod 1777 "$work"
trap 'rm -rf "$work"' EXIT INT TERM
ASAN_OPTIONS=log_path=$work/report
UBSAN_OPTIONS=log_path=$work/report:print_stacktrace=1
case ${1:-} in
stepd)
    export GSCHED_STEPD_CFLAGS="$flags"
    tests="tests/e2e/test_stepd.py tests/e2e/test_stepd_*.py"
    ;;
client)
    export GSCHED_CLIENT_CFLAGS="$flags"
    # Memory that is in use when the client leaves is the kernel's to free.
    ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
    tests="tests/e2e/test_mover*.py"
    ;;
*)
    echo "usage: tools/sanitize-program.sh stepd|client [pytest arguments]" >&2
    exit 2
    ;;
esac
shift
export ASAN_OPTIONS UBSAN_OPTIONS
rc=0
# shellcheck disable=SC2086  # several names
"$python" -P -m pytest -q -p no:cacheprovider "$@" $tests || rc=$?
for report in "$work"/report*; do
    [ -e "$report" ] || continue
    cat "$report"
    rc=1
done
exit "$rc"
