#!/bin/sh
# Runs the tests of the client that moves the streams of steps with one that is built with
# AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     tools/sanitize-client.sh [pytest arguments]
#
# Needs gcc with libasan, and a Python (PYTHON, default python3) in which the project is installed.
set -eu

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
GSCHED_CLIENT_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
# What is found stands in files here: the standard error of a client is a test's to look at.
work=$(mktemp -d)
chmod 1777 "$work"
trap 'rm -rf "$work"' EXIT INT TERM
# Memory that is in use when the client leaves is the kernel's to free.
ASAN_OPTIONS=log_path=$work/report:detect_leaks=0
UBSAN_OPTIONS=log_path=$work/report:print_stacktrace=1
export GSCHED_CLIENT_CFLAGS ASAN_OPTIONS UBSAN_OPTIONS
rc=0
"$python" -P -m pytest -q -p no:cacheprovider "$@" tests/e2e/test_mover*.py || rc=$?
for report in "$work"/report*; do
    [ -e "$report" ] || continue
    cat "$report"
    rc=1
done
exit "$rc"
