# SPDX-License-Identifier: Apache-2.0
"""What SARIF 2.1.0 and code scanning ask of the reports, written down as checks."""
import json
import re
import sys
import urllib.parse

LEVELS = {"none", "note", "warning", "error"}


def check(path):
    text = open(path).read()
    report = json.loads(text)
    assert report["version"] == "2.1.0" and report["$schema"].endswith("sarif-2.1.0.json")
    assert set(report) == {"$schema", "version", "runs"} and len(report["runs"]) == 1
    run = report["runs"][0]
    assert set(run) <= {"automationDetails", "tool", "originalUriBaseIds", "columnKind", "results"}
    driver = run["tool"]["driver"]
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(set(rules)) == len(rules) and all(re.fullmatch("[a-z_]+", rule) for rule in rules)
    assert all(rule["defaultConfiguration"]["level"] in LEVELS and rule["shortDescription"]["text"] for rule in driver["rules"])
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    prints = set()
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"] and result["level"] in LEVELS
        assert result["message"]["text"] and "\x01" not in result["message"]["text"]
        prints.add(result["partialFingerprints"]["loadplanFinding/v1"])
        (location,) = result["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert artifact["uriBaseId"] in run["originalUriBaseIds"]
        uri = urllib.parse.urlsplit(artifact["uri"])
        assert not uri.scheme and not uri.path.startswith("/") and ".." not in uri.path.split("/")
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", artifact["uri"]), artifact["uri"]
        assert location["physicalLocation"].get("region", {"startLine": 1})["startLine"] >= 1
        assert location["logicalLocations"][0]["fullyQualifiedName"]
        for suppression in result.get("suppressions", []):
            assert suppression["kind"] in {"inSource", "external"} and suppression["justification"]
    assert len(prints) == len(run["results"]), "fingerprints are not unique"
    assert not re.search(r"20\d\d-\d\d|/tmp|/home", text), "a time or a host's path"
    return [(r["ruleId"], r["level"], r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
             r["partialFingerprints"]["loadplanFinding/v1"], len(r.get("suppressions", []))) for r in run["results"]]


one, two, clean = (check(path) for path in sys.argv[1:4])
for result in one:
    print(*result)
print("the same by absolute paths:", one == two)
print("clean:", clean)
