"""What pydantic finds wrong, on one line for people.

Guarantee: each place with what is wrong there, and no value: values may be secrets.
"""

from pydantic import ValidationError


def complaints(error: ValidationError) -> str:
    """Every fault with its place, such as `models.m.gpus: Field required`; one of the whole stands without a place."""
    return "; ".join(
        ": ".join(
            part for part in (".".join(map(str, wrong["loc"])), wrong["msg"].removeprefix("Value error, ")) if part
        )
        for wrong in error.errors(include_url=False, include_context=False, include_input=False)
    )
