. "$SUITE/changed.bash"
printf 'dest_vanished layers.* gone on "purpose"\n' > accepted
loadplan diff good.lpt pr.lpt --format=junit --suppressions accepted > diff.xml && exit 9
loadplan check pr.lpt --format=junit --fail-on=warn > check.xml && exit 9
loadplan check good.lpt --format=junit > clean.xml
"$PYTHON" - diff.xml check.xml clean.xml <<'PYTHON'
import sys
import xml.etree.ElementTree as tree
for path in sys.argv[1:]:
    root = tree.parse(path).getroot()
    assert root.tag == "testsuites" and int(root.get("failures")) == len(root.findall(".//failure"))
    for suite in root:
        assert suite.tag == "testsuite" and int(suite.get("tests")) == len(suite.findall("testcase")) > 0
        assert int(suite.get("failures")) == len(suite.findall(".//failure"))
        assert int(suite.get("skipped")) == len(suite.findall(".//skipped"))
        print(path, suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("skipped"))
    for failure in root.iter("failure"):
        print("  ", failure.get("type"), "|", failure.get("message"))
PYTHON
