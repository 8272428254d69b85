"""What a call can come to, by what it was to do."""

from services.vocabulary import Outcome

ANSWERED = (Outcome.DECIDED, Outcome.TIE)
OF_WRITING = (Outcome.ACCEPTED, Outcome.EMPTY, Outcome.TOO_LONG)  # what only the gate makes of a text
UNANSWERED = tuple(outcome for outcome in Outcome if outcome not in (*ANSWERED, *OF_WRITING))
