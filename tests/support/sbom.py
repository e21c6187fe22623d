"""The bill of materials of this version, as CycloneDX: what the lock files pin, the libraries in the dashboard, and the bases of
the image, each with its hash. The same files give the same document, byte for byte: whoever has the source can compare.

    python -m support.sbom dist/latchboard.cdx.json
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from app.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ROOT / "src" / "adapters" / "http" / "dashboard" / "assets" / "vendor"
IMAGE = ROOT / "deploy" / "container" / "Dockerfile"


def _sha256(value: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=value)


def _library(kind: str, name: str, version: str, hashes: list[str], **properties: str) -> Component:
    namespace, _, base = name.rpartition("/")
    purl = PackageURL(kind, namespace or None, base, version)
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=purl,
        bom_ref=purl.to_string(),
        hashes=[_sha256(each) for each in hashes],
        properties=[Property(name=f"latchboard:{key}", value=value) for key, value in properties.items() if value],
    )


def python_packages() -> Iterator[Component]:
    """Of requirements.lock: a hash for each file that may be installed, of every platform."""
    for entry in re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text(encoding="utf-8")):
        found = re.match(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+))?", entry)
        if found is not None:
            hashes = re.findall(r"sha256:([0-9a-f]{64})", entry)
            yield _library("pypi", found["name"], found["version"], hashes, only=(found["marker"] or "").strip())


def rust_crates() -> Iterator[Component]:
    """Of Cargo.lock, without the crates of this repository."""
    for each in tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]:
        if "source" in each:
            yield _library("cargo", each["name"], each["version"], [each["checksum"]])


def dashboard_libraries() -> Iterator[Component]:
    """Of the table in the vendor folder. The hashes are those of our files: the published ones, with other import paths."""
    rows = re.findall(
        r"^\| (`.+?`) \| (\S.*?) \| (\d\S*(?:, \S+)*) \|", (VENDOR / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    for files, names, versions in rows:
        paths = [VENDOR / name for name in re.findall(r"`(.+?)`", files)]
        for name, version in zip(names.split(", "), versions.split(", "), strict=True):
            made = _library("npm", name, version, [])
            made.components = [_file(path) for path in paths if names == name or path.stem == name.rpartition("/")[2]]
            yield made


def _file(path: Path) -> Component:
    name = path.resolve().relative_to(ROOT).as_posix()
    return Component(
        type=ComponentType.FILE, name=name, bom_ref=name, hashes=[_sha256(hashlib.sha256(path.read_bytes()).hexdigest())]
    )


def image_bases() -> Iterator[Component]:
    for name, tag, digest in re.findall(
        r"^ARG \w+_IMAGE=(\w+):(\S+)@sha256:(\w{64})$", IMAGE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        purl = PackageURL("oci", None, name, f"sha256:{digest}", {"tag": tag})
        yield Component(
            type=ComponentType.CONTAINER, name=name, version=tag, purl=purl, bom_ref=purl.to_string(), hashes=[_sha256(digest)]
        )


def bill_of_materials() -> str:
    """JSON of CycloneDX 1.6. Raises ValueError where the schema of CycloneDX does not allow it."""
    root = Component(type=ComponentType.APPLICATION, name="latchboard", version=VERSION, bom_ref="latchboard")
    parts = [*python_packages(), *rust_crates(), *dashboard_libraries(), *image_bases()]
    bom = Bom(components=parts, metadata=BomMetaData(component=root))
    bom.register_dependency(root, parts)
    made = json.loads(JsonV1Dot6(bom).output_as_string())
    del made["metadata"]["timestamp"]
    del made["serialNumber"]
    made["serialNumber"] = uuid5(NAMESPACE_OID, json.dumps(made, sort_keys=True)).urn
    text = json.dumps(made, indent=2, sort_keys=True) + "\n"
    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is no valid CycloneDX: {fault}")
    return text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(bill_of_materials(), encoding="utf-8")
