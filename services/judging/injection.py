"""Texts that imitate the plumbing: markers of a prompt, verdict tags, control tokens of a model.

Guarantee: suspicion only, in linear time. Nothing is removed or refused: the prompt keeps such texts harmless
(`services/judging/prompt.py`), the opinion says that they were there.
"""

import re
from collections.abc import Iterable

from services.judging.protocol import Showing

# Sources: the added tokens of Qwen 2.5 and 3, ChatML as OpenAI published it, and Llama 3 (3.1 and 3.2 included).
_PIPED = (
    *("endoftext", "im_start", "im_end", "im_sep", "repo_name", "file_sep"),
    *("object_ref_start", "object_ref_end", "box_start", "box_end", "quad_start", "quad_end"),
    *("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad", "audio_start", "audio_end", "audio_pad"),
    *("begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id", "eom_id", "step_id"),
    *("python_tag", "finetune_right_pad_id", "image"),
)
_CONTROL_TOKENS = (
    r"<\|(?:" + "|".join(_PIPED) + r"|fim_[a-z]+|reserved_special_token_\d+)\|>"
    r"|</?(?:think|tool_call|tool_response)>"
)


class Detector:
    """Looks for a family's own markers, the tags of turns and verdicts, and control tokens."""

    def __init__(self, markers: Iterable[str], tag: str = "verdict") -> None:
        """`tag` is the one that the family's verdicts stand in."""
        # The attributes stop at the next angle bracket: a run of unfinished tags is scanned once, not once a tag.
        tags = rf"</?(?:user|assistant|{re.escape(tag)})(?:[\s/][^<>]*)?>"
        imitations = "|".join([*map(re.escape, sorted(markers)), tags])
        self._pattern = re.compile(f"(?i:{imitations})|{_CONTROL_TOKENS}")

    def suspects(self, showing: Showing) -> bool:
        """True when the context, a candidate or the principle holds any of them; markers and tags in any case."""
        texts = (*(turn.content for turn in showing.context), *showing.slots, showing.principle or "")
        return any(self._pattern.search(text) for text in texts)
