. "$SUITE/runner.bash"
write_good
action NEW=missing.lpt
action NEW=good.lpt BASE=missing.lpt
action NEW=good.lpt LOADPLAN=no-such-program
action NEW=good.lpt RECORD='exit 3'
head -c 100 good.lpt > broken.lpt
action NEW=broken.lpt 2>/dev/null
echo 'derive_changed * TODO' > accepted
action NEW=good.lpt SUPPRESSIONS=accepted 2>/dev/null
echo "--- what action.yml passes is what the script reads"
"$PYTHON" - "$TESTS/../.github/actions/loadplan-diff" <<'PYTHON'
import re, sys
folder = sys.argv[1]
text, script = open(folder + "/action.yml").read(), open(folder + "/diff.sh").read()
declared = set(re.findall(r"^  ([a-z-]+):$", text[text.index("inputs:"):text.index("outputs:")], re.M))
passed = dict(re.findall(r"^ +INPUT_([A-Z_]+): \$\{\{ inputs\.([a-z-]+) \}\}$", text, re.M))
read = set(re.findall(r"INPUT_([A-Z_]+)", script)) - {""}
assert set(passed.values()) == declared, (passed, declared)
assert set(passed) == read, (passed, read)
assert all(k.lower().replace("_", "-") == v for k, v in passed.items())
given = set(re.findall(r"^          ([a-z-]+): ", open(folder + "/../../workflows/loadplan.yml").read().split("loadplan-diff\n")[1]
                       .split("- uses")[0], re.M))
assert given <= declared, given
print(len(declared), "inputs")
PYTHON
