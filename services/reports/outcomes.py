"""What a call can come to, by what it was to do."""

from services.judging.heard import NO_ANSWER
from services.vocabulary import Outcome

ANSWERED = (Outcome.DECIDED, Outcome.TIE)
OF_WRITING = (Outcome.ACCEPTED, Outcome.EMPTY, Outcome.TOO_LONG)  # what only the gate makes of a text
UNANSWERED = tuple(outcome for outcome in Outcome if outcome not in (*ANSWERED, *OF_WRITING))
UNWRITTEN = tuple(outcome for outcome in UNANSWERED if outcome in NO_ANSWER)  # what no text came of
GATED = (*OF_WRITING, *(outcome for outcome in UNANSWERED if outcome not in NO_ANSWER))  # what a gate can make of one
