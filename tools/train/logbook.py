"""The log book of a made-up plant: facts, copies of facts, prose between them, and questions.

A document is a function of its seed and of its size in tokens. Seeds below HELD_OUT_FROM are for
training, the others for measuring, with other words in their prose. Every question has one right
answer:

    hop0     a stated value         The pressure of pump K7 is 482.
    hop1..4  a copy of a copy ...   Valve B4 copies pump K7.
    again    a value said again     The pressure of pump K7 is ...
    bay      where somebody works   Ada works in bay kilo.
    count    how many machines of a kind are in a bay    Bay kilo has pump K7.
    last     what came last into a bay
    cmp      which of two things has the higher value
    order    which of two numbers is higher: what cmp needs, without the looking up
    before   the question stands before the document, and the end only says `A:`

Text is made in pieces that end where the tokenizer splits anyway, so that encoding them one by one
equals encoding the whole. A piece may say where it has to look: a trainer can show it to the model.
"""

from dataclasses import dataclass, field

import prose
import words
from draw import Draw

HELD_OUT_FROM = 1_000_000
MACHINES = ("pump valve motor sensor tank fan boiler drum heater mixer relay filter").split()
VALUES = ("pressure speed level heat flow load").split()
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
BAYS = ("alpha bravo delta echo golf hotel india kilo lima oscar papa romeo sierra tango victor "
        "zulu").split()
WORKERS = ("Ada Ben Cleo Dan Eva Finn Gus Hana Ivan Jo Kim Lena Max Nora Otto Pia Quinn Rosa Sam "
           "Tess Uma Vic Wen Yara").split()
HOPS_MAX = 4
THINGS_MAX = 200  # a letter and a digit name one thing of a document, and there are 216
COUNT_MAX = 6

# How often training asks what. The kinds that come last to a small model are asked more.
TRAINING_KINDS = {"hop0": 3, "hop1": 2, "hop2": 1.5, "hop3": 1, "hop4": 0.7, "again": 2, "bay": 1,
                  "count": 3, "last": 2, "cmp": 2, "order": 1}
# What a held-out document is asked, in turns.
HELD_OUT_KINDS = ("hop0", "hop1", "hop2", "again", "bay", "count", "last", "cmp", "hop0", "hop3",
                  "order", "hop4")


@dataclass(slots=True)
class Piece:
    """A run of text.

    kind     what: frame, fact, prose, question, or answer
    home     its first content token is where the value of this key stands
    looks    the keys whose homes have to be attended to: by the token before the first content
             token of an answer, by the first token of any other piece
    """

    text: str
    kind: str
    home: object = None
    looks: tuple = ()
    ids: list = None


@dataclass(slots=True)
class Question:
    """What is asked after the document (`before`: also before it), and its answer."""

    kind: str
    asked: list
    answer: Piece
    ahead: list = field(default_factory=list)


@dataclass(slots=True)
class Document:
    seed: int
    body: list
    questions: list
    before: Question


def is_held_out(seed):
    return seed >= HELD_OUT_FROM


class Plant:
    """The facts of one document, in the order in which they are written."""

    def __init__(self, draw):
        self._draw = draw
        self.value = {}  # thing: (what is measured, value)
        self.source = {}  # copy: what it copies
        self.depth = {}  # thing: how many copies away its value is stated
        self.works = {}  # worker: bay
        self.stands = {bay: [] for bay in draw.sample(BAYS, draw.between(1, 3))}
        self._machines = draw.sample(MACHINES, draw.between(1, 2))  # kinds that stand in bays
        self._names = draw.sample([(a, b) for a in LETTERS for b in range(1, 10)], THINGS_MAX)
        # A quarter of the documents puts nothing into bays, the others up to a third of the facts.
        self._standing_share = draw.uniform(0.05, 0.35) if draw.chance(0.75) else 0
        self._copy_share = draw.uniform(0.2, 0.45)

    def is_full(self):
        return not self._names

    def _new_thing(self, machine=None):
        letter, digit = self._names.pop()
        return f"{machine or self._draw.pick(MACHINES)} {letter}{digit}"

    def next_fact(self):
        """The pieces of one more fact."""
        draw = self._draw
        if draw.chance(self._standing_share):
            return self._standing()
        if self.value and draw.chance(self._copy_share):
            return self._copy()
        if draw.chance(0.15) and len(self.works) < len(WORKERS):
            return self._worker()
        return self._stated()

    def _stated(self):
        thing, what = self._new_thing(), self._draw.pick(VALUES)
        number = str(self._draw.between(100, 999))
        self.value[thing], self.depth[thing] = (what, number), 0
        return [Piece(f"The {what} of {thing} is", "fact"), Piece(" " + number, "fact", thing),
                Piece(".\n", "fact")]

    def _copy(self):
        draw, things = self._draw, list(self.value)
        source = draw.pick(things[-12:] if draw.chance(0.7) else things)
        thing = self._new_thing()
        what, number = self.value[source]
        self.value[thing], self.source[thing] = (what, number), source
        self.depth[thing] = min(self.depth[source] + 1, HOPS_MAX)
        start = f"{thing[0].upper()}{thing[1:]} copies {source}"
        if draw.chance(0.3):
            return [Piece(f"{start}, so its {what} is", "fact"),
                    Piece(" " + number, "answer", thing, (source,)), Piece(".\n", "fact")]
        return [Piece(start, "fact"), Piece(".\n", "fact", thing, (source,))]

    def _worker(self):
        free = [name for name in WORKERS if name not in self.works]
        name, bay = self._draw.pick(free), self._draw.pick(BAYS)
        self.works[name] = bay
        return [Piece(f"{name} works in bay", "fact"), Piece(" " + bay, "fact", ("worker", name)),
                Piece(".\n", "fact")]

    def _standing(self):
        bay = self._draw.pick(list(self.stands))
        thing = self._new_thing(self._draw.pick(self._machines))
        self.stands[bay].append(thing)
        return [Piece(f"Bay {bay} has", "fact"), Piece(" " + thing, "fact", ("stands", thing)),
                Piece(".\n", "fact")]

    def ask(self, kind):
        """A question of this kind, or None where the facts give no such question."""
        return getattr(self, "_ask_" + kind.rstrip("01234"))(kind)

    def _ask_hop(self, kind):
        things = [t for t, depth in self.depth.items() if depth == int(kind[-1])]
        if not things:
            return None
        thing = self._draw.pick(things)
        what, number = self.value[thing]
        return Question(kind, [Piece(f"Q: What is the {what} of {thing}? A:", "question")],
                        Piece(" " + number, "answer", None, (thing,)))

    def _ask_again(self, kind):
        if not self.value:
            return None
        thing = self._draw.pick(list(self.value))
        what, number = self.value[thing]
        return Question(kind, [Piece(f"The {what} of {thing} is", "question")],
                        Piece(" " + number, "answer", None, (thing,)))

    def _ask_bay(self, kind):
        if not self.works:
            return None
        name = self._draw.pick(list(self.works))
        return Question(kind, [Piece(f"Q: Where does {name} work? A: bay", "question")],
                        Piece(" " + self.works[name], "answer", None, (("worker", name),)))

    def _ask_count(self, kind):
        """Draws the answer first, so that small counts are no safe guess."""
        by_count = {}
        for bay, things in self.stands.items():
            for machine in self._machines if any(self.stands.values()) else ():
                n = sum(thing.startswith(machine + " ") for thing in things)
                if n <= COUNT_MAX:
                    by_count.setdefault(n, []).append((bay, machine))
        if not by_count:
            return None
        n = self._draw.pick(sorted(by_count))
        bay, machine = self._draw.pick(by_count[n])
        looks = tuple(("stands", thing) for thing in self.stands[bay]
                      if thing.startswith(machine + " "))
        return Question(kind, [Piece(f"Q: How many {machine}s are in bay {bay}? A:", "question")],
                        Piece(f" {n}", "answer", None, looks))

    def _ask_last(self, kind):
        bays = [bay for bay, things in self.stands.items() if things]
        if not bays:
            return None
        bay = self._draw.pick(bays)
        thing = self.stands[bay][-1]
        return Question(kind, [Piece(f"Q: What came last into bay {bay}? A:", "question")],
                        Piece(" " + thing, "answer", None, (("stands", thing),)))

    def _ask_cmp(self, kind):
        if len(self.value) < 2:
            return None
        pair = self._draw.sample(list(self.value), 2)
        numbers = [int(self.value[thing][1]) for thing in pair]
        return self._which(kind, pair, numbers, [(thing,) for thing in pair])

    def _ask_order(self, kind):
        numbers = [self._draw.between(100, 999) for _ in range(2)]
        return self._which(kind, [str(n) for n in numbers], numbers, ((), ()))

    @staticmethod
    def _which(kind, names, numbers, looks):
        """Which is higher? The word after each name is where its value is to be looked up."""
        if numbers[0] == numbers[1]:
            return None
        keys = [("named", name) for name in names]
        asked = [Piece("Q: Which is higher,", "question"),
                 Piece(" " + names[0], "question", keys[0]),
                 Piece(" or", "question", None, looks[0]),
                 Piece(" " + names[1], "question", keys[1]),
                 Piece("?", "question", None, looks[1]), Piece(" A:", "question")]
        higher = numbers[1] > numbers[0]
        return Question(kind, asked, Piece(" " + names[higher], "answer", None, (keys[higher],)))

    def ask_before(self):
        """A question that stands before the document."""
        if not self.value:
            return None
        depths = sorted(set(self.depth.values()))
        asked = self._ask_hop(f"hop{self._draw.pick(depths[:3])}")
        text = asked.asked[0].text.removesuffix("? A:")
        ahead = [Piece(text, "question"), Piece("?\n", "question", "asked ahead")]
        end = [Piece("A", "question"), Piece(":", "question", None, ("asked ahead",))]
        return Question("before", end, asked.answer, ahead)


def n_tokens(pieces):
    return sum(len(piece.ids) for piece in pieces)


def make_document(seed, tokens, encode, ask_tokens=None, rounds=1):
    """The document of this seed, with its questions about `tokens` tokens long, never longer.

    encode      text -> ids; the one of this folder's vocabulary, if seeds are to mean the same
    ask_tokens  how many of the tokens questions may take; without it each held-out kind is asked
                `rounds` times, and there is room for any one of the questions
    """
    draw = Draw(seed)
    vocabulary = words.HELD if is_held_out(seed) else words.TRAIN
    talk = prose.Prose(Draw(seed + (1 << 40)), vocabulary)

    def encoded(pieces):
        for piece in pieces:
            piece.ids = encode(piece.text)
        return pieces

    room = tokens - 64 if ask_tokens is None else tokens - ask_tokens - 24
    plant, facts = Plant(draw), []
    left = int(room * draw.uniform(0.2, 0.65))
    while (left > 0 or not plant.value) and not plant.is_full():  # there is something to ask for
        facts.append(encoded(plant.next_fact()))
        left -= n_tokens(facts[-1])
        room -= n_tokens(facts[-1])
    questions = list(ask_held_out(plant, rounds) if ask_tokens is None
                     else ask_training(plant, draw, encoded, ask_tokens))
    before = plant.ask_before()
    for question in questions + [before]:
        encoded([*question.ahead, *question.asked, question.answer])
    body = interleave(draw, facts, fill(talk, room, encoded))
    return Document(seed, encoded([Piece("Log.\n", "frame")]) + body, questions, before)


def ask_held_out(plant, rounds):
    """Questions of all kinds, each only once."""
    asked = {}
    for question in filter(None, map(plant.ask, HELD_OUT_KINDS * rounds)):
        asked.setdefault(question.asked[0].text + question.answer.text, question)
    return asked.values()


def ask_training(plant, draw, encoded, tokens):
    """Questions for about `tokens` tokens."""
    while tokens > 0:
        question = plant.ask(draw.pick_weighted(TRAINING_KINDS))
        if question:
            tokens -= n_tokens(encoded(question.asked)) + n_tokens(encoded([question.answer])) + 1
            if tokens >= 0:
                yield question


def fill(talk, tokens, encoded):
    """Paragraphs, and at the end a few sentences, that fill the tokens as well as they can."""
    lines, misses = [], 0
    while misses < 4:
        text = talk.paragraph() if misses == 0 else talk.sentence() + "\n"
        line = encoded([Piece(text, "prose")])
        if n_tokens(line) <= tokens:
            lines.append(line)
            tokens -= n_tokens(line)
        else:
            misses += 1
    return lines


def interleave(draw, facts, lines):
    """Facts in their order, lines in theirs, mixed at random."""
    n_facts, n_lines = len(facts), len(lines)
    facts, lines, body = iter(facts), iter(lines), []
    while n_facts + n_lines:
        is_fact = draw.below(n_facts + n_lines) < n_facts
        body += next(facts) if is_fact else next(lines)
        n_facts, n_lines = n_facts - is_fact, n_lines - (not is_fact)
    return body
