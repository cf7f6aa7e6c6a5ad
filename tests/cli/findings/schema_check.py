# SPDX-License-Identifier: Apache-2.0
"""Validates JSON against the schemas of docs/schemas: the part of JSON Schema that they use, and nothing else.

    schema_check.py SCHEMA FILE [--lines]      exits with 1 and the path of what is wrong
"""
import json
import pathlib
import re
import sys

KNOWN = {"$schema", "$defs", "$ref", "title", "description", "type", "required", "properties", "items", "enum", "const",
         "minimum", "pattern", "oneOf", "additionalProperties"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
         "null": type(None)}


def is_of(value, name):
    return isinstance(value, TYPES[name]) and (name not in ("integer", "number") or not isinstance(value, bool))


def resolve(reference, folder, root):
    name, pointer = reference.split("#")
    document = json.loads((folder / name).read_text()) if name else root
    node = document
    for part in pointer.strip("/").split("/"):
        node = node[part]
    return node, document


def errors(value, schema, folder, root, path="$"):
    unknown = set(schema) - KNOWN
    assert not unknown, f"the validator does not know {unknown}"
    if "$ref" in schema:
        target, document = resolve(schema["$ref"], folder, root)
        yield from errors(value, target, folder, document, path)
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_of(value, name) for name in names):
            yield f"{path}: {value!r} is no {' or '.join(names)}"
            return
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value!r} is below {schema['minimum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} does not match {schema['pattern']}"
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}: '{name}' is missing"
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name in value:
                yield from errors(value[name], part, folder, root, f"{path}.{name}")
        # Members that no schema documents are a mistake of the documentation.
        if "properties" in schema and "$ref" not in schema and "oneOf" not in schema:
            for name in sorted(set(value) - set(schema["properties"]) - ({"type"} if path == "$" else set())):
                yield f"{path}: '{name}' is not documented"
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from errors(item, schema["items"], folder, root, f"{path}[{i}]")
    if "oneOf" in schema:
        found = [list(errors(value, part, folder, root, path)) for part in schema["oneOf"]]
        if sum(not e for e in found) != 1:
            yield f"{path}: {sum(not e for e in found)} of the forms fit: {found}"


def main():
    schema_path = pathlib.Path(sys.argv[1])
    schema = json.loads(schema_path.read_text())
    text = pathlib.Path(sys.argv[2]).read_text()
    values = [json.loads(line) for line in text.splitlines()] if "--lines" in sys.argv else [json.loads(text)]
    assert values, "nothing to validate"
    wrong = [e for value in values for e in errors(value, schema, schema_path.parent, schema)]
    print("\n".join(wrong) if wrong else f"{schema_path.name}: {len(values)} valid")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
