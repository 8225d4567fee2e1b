#!/usr/bin/env python3
"""interface.py PRINT_INTERFACE OPENAPI: the OpenAPI file says what tarnd's tables say.

Endpoints with their methods and aliases, which need no key, and each field of each request: whether
it is served, ignored or refused, its type, bounds, default, and the values of a refused field that
are taken. Packages PyYAML and openapi-spec-validator.
"""
import json
import subprocess
import sys

from daemon import program_and_arguments, require, run_checks, skip

try:
    import yaml
    from openapi_spec_validator import validate
except ImportError:
    skip("no packages PyYAML and openapi-spec-validator")

PROGRAM, (PATH,) = program_and_arguments()
with open(PATH, encoding="utf-8") as text:
    OPENAPI = yaml.safe_load(text)
LINES = [json.loads(line) for line in
         subprocess.run([PROGRAM], capture_output=True, check=True).stdout.splitlines()]
ROUTES = [line for line in LINES if "path" in line]
FIELDS = [line for line in LINES if "field" in line]
# Of FieldType.
(BOOLEAN, INTEGER, NUMBER, TEXT, TEXTS, PASSAGES, PROMPT, IDS, BIASES, MESSAGES, OBJECT, JSON,
 ANY) = range(13)


def resolved(schema):
    while "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        schema = OPENAPI["components"]["schemas"][name]
    return schema


def properties(schema):
    """All properties of an object, by name, those of inner objects as OUTER.INNER."""
    schema = resolved(schema)
    found = {}
    for part in schema.get("allOf", []):
        found.update(properties(part))
    for name, value in schema.get("properties", {}).items():
        value = resolved(value)
        found[name] = value
        if "x-tarn" not in value:
            found.update({f"{name}.{inner}": v for inner, v in properties(value).items()})
    return found


def required(schema):
    schema = resolved(schema)
    names = set(schema.get("required", []))
    return names.union(*(required(part) for part in schema.get("allOf", [])))


def check_valid():
    """it is an OpenAPI file"""
    validate(OPENAPI)


def check_routes():
    """endpoints, aliases and methods are the same, and which of them need no key"""
    documented = {}
    for path, item in OPENAPI["paths"].items():
        for method in set(item) & {"get", "post", "delete"}:
            is_public = item[method].get("security") == []
            for name in [path, *item.get("x-tarn-aliases", [])]:
                documented[(method.upper(), name.split("{")[0])] = is_public
    served = {(line["method"], line["path"]): line["public"] for line in ROUTES}
    require(documented == served, f"{set(documented.items()) ^ set(served.items())}")


def check_fields():
    """each request has the same fields, of the same kind, and the same ones are required"""
    for schema in sorted({line["schema"] for line in FIELDS}):
        reference = {"$ref": f"#/{schema}"}
        documented = {name: value.get("x-tarn", "served")
                      for name, value in properties(reference).items()}
        served = {line["field"]: line["kind"] for line in FIELDS if line["schema"] == schema}
        difference = set(documented.items()) ^ set(served.items())
        require(not difference, f"{schema}: {sorted(difference)}")
        wanted = {line["field"] for line in FIELDS if line["schema"] == schema and line["required"]}
        require(required(reference) == wanted, f"{schema}: {required(reference) ^ wanted}")


def bounds_of(line, value):
    """What the file says, and what the table says."""
    least, most, kind = line["least"], line["most"], line["type"]
    if kind in (INTEGER, NUMBER):
        return (value.get("minimum"), value.get("maximum")), (least, most)
    if kind == TEXT:
        said = (value.get("minLength", 0), value.get("maxLength", most))
        return said, (least, most)
    if kind == TEXTS:
        lists = next(part for part in value["oneOf"] if part["type"] == "array")
        return (lists.get("minItems", 0), lists["maxItems"]), (least, most)
    if kind in (IDS, PASSAGES):
        return (value.get("minItems", 0), value.get("maxItems", most)), (least, most)
    return None, None


def check_bounds():
    """types, bounds and defaults of served fields are the same"""
    names = {BOOLEAN: "boolean", INTEGER: "integer", NUMBER: "number", TEXT: "string",
             IDS: "array", PASSAGES: "array", MESSAGES: "array", OBJECT: "object", JSON: "object"}
    for line in FIELDS:
        if line["kind"] != "served":
            continue
        value = properties({"$ref": f"#/{line['schema']}"})[line["field"]]
        where = f"{line['schema']}.{line['field']}"
        require(value.get("type") == names.get(line["type"]), f"{where}: type {value.get('type')}")
        said, meant = bounds_of(line, value)
        require(said == meant, f"{where}: {said}, the table has {meant}")
        if "default" in value:
            require(value["default"] == line["default"], f"{where}: default {value['default']}")
        about = line["about"]
        require(not about or value["description"] == about, f"{where}: description, not: {about}")
        require(line["required"] or value.get("nullable") is True, f"{where}: may be null")


def check_harmless():
    """a refused field is described by the values that are taken"""
    for line in FIELDS:
        if line["kind"] != "refused":
            continue
        value = properties({"$ref": f"#/{line['schema']}"})[line["field"]]
        words = {json.dumps(entry).strip('"') for entry in value["enum"]}
        meant = {"null", *filter(None, line["harmless"].split("|"))}
        if not meant & {"true"} and line["harmless"] != "null":
            meant.add("false")
        words -= {"", "[]", "{}"}
        require(words == meant, f"{line['schema']}.{line['field']}: {words}, the table has {meant}")


if __name__ == "__main__":
    sys.exit(run_checks([check_valid, check_routes, check_fields, check_bounds, check_harmless]))
