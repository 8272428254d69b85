"""JSON as text: how caller content rests in the database and comes back exactly as it was sent.

Guarantee: what `escaped` makes is plain JSON that PostgreSQL's text takes whatever the string holds: NUL and lone
surrogates stand in it as escapes.
"""

import json
import re
from json.encoder import encode_basestring
from typing import Any

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def escaped(value: Any) -> str:
    """`value` as compact JSON text, storable as it is. Raises ValueError on NaN and infinities."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def literal(text: str) -> str:
    """`text` as a JSON string literal, storable as it is: `escaped` for the commonest value, and several times
    faster.
    """
    quoted: str = encode_basestring(text)
    return quoted if quoted.isascii() else UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
