"""A committee's part of a report's text.

Guarantee: pure, and says nothing that the report does not hold. Every mean stands beside the number of its texts.
"""

from collections.abc import Iterator

from services.contract.reports.committee import CommitteeReport, MemberReport
from services.contract.reports.reappraisal import ChoosingMember
from services.reports.markup import brief, number, plain, table, whole
from services.reports.sections import Row

NORMALISED = {"reference": "by its anchors", "group": "within each item"}


def sections(committee: CommitteeReport) -> Iterator[str]:
    """What the members gave, and how far they agree."""
    yield (
        f"{plain(committee.name)}, normalised {NORMALISED[committee.normalise]}. "
        f"Scored by every member: {whole(committee.scored)}.\n"
        f"Mean score of these texts: {number(committee.score)}. "
        f"Mean disagreement of the members on them: {number(committee.disagreement)}."
    )
    chooses = any(isinstance(member, ChoosingMember) for member in committee.members)
    head = ("member", "weight", "texts scored", "mean z", "std of z", *(("favourite chosen",) if chooses else ()))
    yield table(head, [_member(member) for member in committee.members])
    if unscored := [line for member in committee.members for line in _unscored(member)]:
        yield "\n".join(unscored)
    if committee.correlations:
        yield table(
            ("members", "correlation of z", "texts"),
            [
                (" and ".join(map(plain, pair.members)), number(pair.r), str(pair.texts))
                for pair in committee.correlations
            ],
        )


def _member(member: MemberReport) -> Row:
    favourite = (brief(member.favourite),) if isinstance(member, ChoosingMember) else ()
    figures = (f"{member.weight:g}", brief(member.scored), number(member.mean), number(member.std))
    return (plain(member.name), *figures, *favourite)


def _unscored(member: MemberReport) -> Iterator[str]:
    """What kept a member from scoring some texts."""
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in member.unscored.items() if count)
    if counts:
        yield f"- {plain(member.name)} did not score: {counts}."
