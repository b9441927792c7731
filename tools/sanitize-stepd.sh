#!/bin/sh
# Runs the tests of the step supervisor with one that is built with AddressSanitizer and
# UndefinedBehaviorSanitizer: whole lives of steps, hostile tasks, nonsense from clients.
#
#     tools/sanitize-stepd.sh [pytest arguments]
#
# Needs gcc with libasan, and a Python (PYTHON, default python3) in which the project is installed.
set -eu

cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
GSCHED_STEPD_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
# A supervisor has no standard error: what the sanitizers find goes into files here.
work=$(mktemp -d)
chmod 1777 "$work"
trap 'rm -rf "$work"' EXIT INT TERM
ASAN_OPTIONS=log_path=$work/report
UBSAN_OPTIONS=log_path=$work/report:print_stacktrace=1
export GSCHED_STEPD_CFLAGS ASAN_OPTIONS UBSAN_OPTIONS
rc=0
"$python" -P -m pytest -q -p no:cacheprovider "$@" \
    tests/e2e/test_stepd.py tests/e2e/test_stepd_*.py || rc=$?
for report in "$work"/report*; do
    [ -e "$report" ] || continue
    cat "$report"
    rc=1
done
exit "$rc"
