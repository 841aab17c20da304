"""Damage: to bytes, to JSON, to TOML, to the formats that weights and subword models come in."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from uncurse.storage.checksums import CHECKSUM

Damage = Callable[[DrawFn, bytes], bytes]

NUMBERS = (0, 1, 2, 3, 127, 255, 256, 1 << 15, 0xFFFF, 1 << 20, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1)
RAW = (  # JSON as no honest writer writes it
    "NaN", "-Infinity", "1e999", "-1e999", "9" * 5000, "9" * 19, "-1", "0", "1.5", "1e308", "1099511627776",
    "true", "null", '""', '"\\ud800"', '"</s>"', '"a\\nb"', "[]", "{}", "[[]]", "[" * 100_000,
    "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, '{"a": 1, "a": 2}', "tru", '"', "\u0000",
)  # fmt: skip
TOML = (
    "nan", "-inf", "1e999", "9" * 5000, "9" * 400, "-1", "0", "1099511627776", "true", "''", "[]", "{}", "[[]]",
    "[" * 3000 + "]" * 3000, "{a=" * 1000 + "1" + "}" * 1000, "1979-05-27", "'\\u0000'", '"""', "0x", "[1, 'a']",
)  # fmt: skip


def bytes_changed(draw: DrawFn, content: bytes) -> bytes:
    """Flipped, cut, repeated, overwritten, in a few places."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(changed) - 1, 0)))
        count = draw(st.sampled_from((1, 2, 4, 8, 64, 1000)))
        how = draw(st.sampled_from(("flip", "flip", "number", "cut", "drop", "insert", "repeat", "zero", "fill")))
        if how == "flip" and changed:
            changed[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "number":
            number = draw(st.sampled_from(NUMBERS))
            kind = draw(st.sampled_from(("<B", "<H", "<I", "<Q", ">I")))
            size = struct.calcsize(kind)
            changed[at : at + size] = struct.pack(kind, number % (1 << 8 * size))
        elif how == "cut":
            del changed[at:]
        elif how == "drop":
            del changed[at : at + count]
        elif how == "insert":
            changed[at:at] = draw(st.binary(min_size=1, max_size=8))
        elif how == "repeat":
            changed[at:at] = changed[at : at + count]
        else:
            changed[at : at + count] = (b"\0" if how == "zero" else b"\xff") * len(changed[at : at + count])
    return bytes(changed)


def json_inflated(draw: DrawFn, content: bytes) -> bytes:
    """Some hundred kilobytes of something in place of a value, or beside the others."""
    try:
        value = json.loads(content)
    except ValueError:
        return bytes_changed(draw, content)
    count = draw(st.sampled_from((1000, 50_000, 200_000)))
    many = draw(
        st.sampled_from(
            ("[" + "0," * count + "0]", "[" + "[]," * count + "[]]", '"' + "x" * count + '"',
             "{" + ",".join(f'"{each}":0' for each in range(count // 4)) + "}")
        )
    )  # fmt: skip
    if isinstance(value, dict) and value:
        name = draw(st.sampled_from((*sorted(value), "more")))
        value = {**value, name: "@many@"}
    else:
        value = "@many@"
    return json.dumps(value).replace('"@many@"', many).encode()


def json_changed(draw: DrawFn, content: bytes) -> bytes:
    """Some values replaced, left out or renamed."""
    try:
        value = json.loads(content)
    except ValueError:
        return bytes_changed(draw, content)
    raw: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        value = _in_tree(draw, value, raw)
    text = json.dumps(value)
    for number, each in enumerate(raw):
        text = text.replace(f'"@raw{number}@"', each)
    return text.encode("utf-8", "surrogatepass")


def checksummed_changed(draw: DrawFn, content: bytes) -> bytes:
    """A value of a table that has a checksum, with the checksum as it was."""
    table = json.loads(content)
    checksum = json.dumps({CHECKSUM: table.pop(CHECKSUM)})[:-1].encode()
    changed = json_changed(draw, json.dumps(table).encode())
    return checksum + (b", " if changed != b"{}" else b"") + changed[1:]


def _in_tree(draw: DrawFn, value: Any, raw: list[str]) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        name = draw(st.sampled_from(sorted(value)))
        how = draw(st.sampled_from(("deeper", "deeper", "deeper", "drop", "rename", "twin")))
        if how == "deeper":
            return {**value, name: _in_tree(draw, value[name], raw)}
        left = {key: each for key, each in value.items() if key != name}
        if how == "twin":
            return {**value, f"{name}x": value[name]}
        return left if how == "drop" else {**left, draw(st.sampled_from((f"{name}x", "", "a/../b"))): value[name]}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(value) - 1))
        how = draw(st.sampled_from(("deeper", "deeper", "drop", "twin")))
        if how == "deeper":
            return [*value[:at], _in_tree(draw, value[at], raw), *value[at + 1 :]]
        return value[:at] + value[at + 1 :] if how == "drop" else [*value[:at], value[at], *value[at:]]
    if isinstance(value, int) and not isinstance(value, bool) and draw(st.booleans()):
        return value + draw(st.sampled_from((-1, 1, 2, 1000)))
    raw.append(draw(st.sampled_from(RAW)))
    return f"@raw{len(raw) - 1}@"


def toml_changed(draw: DrawFn, content: bytes) -> bytes:
    """Some values replaced, some lines left out, repeated or swapped."""
    lines = content.decode().splitlines()
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(("value", "value", "value", "drop", "repeat", "rename", "nest")))
        if how == "value" and "=" in lines[at]:
            lines[at] = f"{lines[at].partition('=')[0]}= {draw(st.sampled_from(TOML))}"
        elif how == "drop" and len(lines) > 1:
            del lines[at]
        elif how == "repeat":
            lines.insert(at, lines[at])
        elif how == "rename":
            lines[at] = draw(st.sampled_from(("x", "", "é", "a.b.c."))) + lines[at]
        else:
            lines.insert(at, draw(st.sampled_from(("[a]", "[[data]]", ".".join("a" * 3000) + " = 1", "[" * 5000))))
    return "\n".join(lines).encode()


def safetensors_changed(draw: DrawFn, content: bytes) -> bytes:
    """The header of a safetensors file, its length, or the numbers."""
    (size,) = struct.unpack_from("<Q", content)
    how = draw(st.sampled_from(("header", "header", "header", "fields", "length", "numbers", "anything")))
    if how == "header":
        how_changed = draw(st.sampled_from((json_changed, json_inflated)))
        return with_header(how_changed(draw, content[8 : 8 + size]), content[8 + size :])
    if how == "fields":
        return with_header(_one_field(draw, content[8 : 8 + size]), content[8 + size :])
    if how == "length":
        return struct.pack("<Q", draw(st.sampled_from(NUMBERS))) + content[8:]
    if how == "numbers":
        return content[: 8 + size] + bytes_changed(draw, content[8 + size :])
    return bytes_changed(draw, content)


def with_header(header: bytes, numbers: bytes) -> bytes:
    """A safetensors file."""
    return struct.pack("<Q", len(header)) + header + numbers


def _one_field(draw: DrawFn, content: bytes) -> bytes:
    """A tensor that claims another shape, type or place and is consistent otherwise."""
    header = json.loads(content)
    name = draw(st.sampled_from(sorted(each for each in header if each != "__metadata__")))
    tensor = header[name]
    how = draw(st.sampled_from(("transpose", "flat", "dtype", "huge", "shift", "swap")))
    if how == "transpose":
        tensor["shape"] = tensor["shape"][::-1]
    elif how == "flat":
        count = 1
        for each in tensor["shape"]:
            count *= each
        tensor["shape"] = draw(st.sampled_from(([count], [1, count], [count, 1])))
    elif how == "dtype":
        tensor["dtype"] = draw(
            st.sampled_from(("F32", "I32", "U32", "F16", "BF16", "F64", "I64", "BOOL", "F8_E4M3"))
        )
    elif how == "huge":
        tensor["shape"] = draw(st.sampled_from(([1 << 40], [1 << 32, 1 << 32], [0, 1 << 62], [1 << 63])))
    elif how == "shift":
        tensor["data_offsets"] = [each + 4 for each in tensor["data_offsets"]]
    else:
        other = draw(st.sampled_from(sorted(each for each in header if each != "__metadata__")))
        header[name], header[other] = header[other], tensor
    return json.dumps(header).encode()


def ctranslate2_changed(draw: DrawFn, content: bytes) -> bytes:
    """A name, a size, a shape or a type somewhere in a `model.bin`."""
    how = draw(st.sampled_from(("name", "shape", "type", "size", "anything")))
    places = [match.start() for match in re.finditer(rb"(en|de)coder/[\w/]+\0", content)]
    if how == "anything" or not places:
        return bytes_changed(draw, content)
    at = draw(st.sampled_from(places))
    end = content.index(b"\0", at) + 1
    if how == "name":
        name = bytearray(content[at:end])
        name[draw(st.integers(0, len(name) - 1))] = draw(st.integers(0, 255))
        return content[:at] + bytes(name) + content[end:]
    rank = content[end]
    after = end + 1 + 4 * rank
    if how == "shape":
        shape = b"".join(struct.pack("<I", draw(st.sampled_from(NUMBERS)) % (1 << 32)) for _ in range(rank))
        return content[: end + 1] + shape + content[after:]
    if how == "type":
        return content[:after] + bytes([draw(st.integers(0, 6))]) + content[after + 1 :]
    claimed = struct.pack("<I", draw(st.sampled_from(NUMBERS)) % (1 << 32))
    return content[: after + 1] + claimed + content[after + 5 :]


def marian_changed(draw: DrawFn, content: bytes) -> bytes:
    """A number in the headers of a Marian file, a letter of a name or of a setting, or anything."""
    how = draw(st.sampled_from(("header", "header", "name", "setting", "anything")))
    (count,) = struct.unpack_from("<Q", content, 8)
    names = 16 + 32 * count
    if how == "header":
        at = 8 * draw(st.integers(0, names // 8 - 1))
        number = draw(st.sampled_from(NUMBERS)) % (1 << 64)
        return content[:at] + struct.pack("<Q", number) + content[at + 8 :]
    changed = bytearray(content)
    if how == "name":  # or one of the shapes behind the names
        changed[draw(st.integers(names, names + 30 * count))] = draw(st.integers(0, 255))
        return bytes(changed)
    if how == "setting":
        changed[draw(st.integers(len(content) - 500, len(content) - 1))] = draw(st.integers(0, 255))
        return bytes(changed)
    return bytes_changed(draw, content)


def protobuf_changed(draw: DrawFn, content: bytes) -> bytes:
    """Fields of a message left out, repeated, swapped, or damaged inside with their length kept right."""
    fields = _fields(content)
    if not fields or not draw(st.integers(0, 3)):
        return bytes_changed(draw, content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(fields) - 1)) if draw(st.booleans()) else len(fields) - 1
        how = draw(st.sampled_from(("inside", "inside", "drop", "repeat", "swap")))
        key, value = fields[at]
        if how == "inside":
            fields[at] = key, bytes_changed(draw, value)
        elif how == "drop" and len(fields) > 1:
            del fields[at]
        elif how == "repeat":
            fields.insert(at, fields[at])
        else:
            other = draw(st.integers(0, len(fields) - 1))
            fields[at], fields[other] = fields[other], fields[at]
    return b"".join(_varint(key) + _varint(len(value)) + value for key, value in fields)


def _fields(content: bytes) -> list[tuple[int, bytes]]:
    """The fields of a message that has only strings and messages in it; none if it has others."""
    found, at = [], 0
    while at < len(content):
        key, at = _read_varint(content, at)
        if key & 7 != 2:
            return []
        size, at = _read_varint(content, at)
        found.append((key, content[at : at + size]))
        at += size
    return found


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not content[at - 1] & 0x80:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
