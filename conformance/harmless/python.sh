# CPython's own tests: the third word names the test. The outcome is each case's.
. "$(dirname "$0")/lib.sh" "$1" "$2"
mkdir temporary
status=0
/usr/bin/python3 -m test --junit-xml result.xml --tempdir "$PWD/temporary" "$3" || status=$?
/usr/bin/python3 - <<'P'
import xml.etree.ElementTree as tree
for case in sorted(tree.parse("result.xml").iter("testcase"), key=lambda case: case.get("name")):
    verdicts = sorted({child.tag for child in case if child.tag in ("failure", "error", "skipped")})
    print("=", case.get("name"), "+".join(verdicts) or "passed")
P
echo "= exit status $status"
