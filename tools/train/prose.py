"""Makes up the prose between the facts: paragraphs of a small grammar over words.py.

A document has a cast: a few people, some things with a lasting property each, some doings. So a
reader who remembers the document guesses the next words better than one who does not, which is what
perplexity over a long context should notice. No sentence holds a number of three digits, and no
word of the facts.
"""

import re

import words

CAST = {"names": 3, "nouns": 14, "adjectives": 9, "verbs": 9, "moves": 5}
SENTENCES = (1, 4)

# {symbol} is replaced by one of its expansions here, or by the cast through the method _symbol.
# {A} stands for the article of the word after it.
GRAMMAR = {
    "sentence": [
        "{who} {did} {what}.",
        "{who} {did} {what} {when}.",
        "{who} {did} {what} and {did} {what}.",
        "{who} {did} {what}, but {who} {did} it {how}.",
        "{when}, {who} {did} {what}.",
        "when {who} {moved}, {who} {did} {what}.",
        "{who} {moved} {place} {when}.",
        "{who} {moved} {how}, and nobody {did} {what}.",
        "{thing} {place} was {property}.",
        "{thing} was {property} and {property}, but {thing} was not.",
        "there was {A} {property} {noun} {place}.",
        "{name} said that {thing} was {property}.",
        "{name} asked {name} why {thing} {moved}.",
        "nobody {did} {thing} until {name} {did} it.",
        "after {thing} {moved}, {name} had to {do} {what}.",
        "{name} wanted to {do} {thing}, so {name} {did} {what} first.",
        "{thing}, {thing} and {thing} {did_not} {do_move}.",
        "if {name} did not {do} {what}, {name} would {do} it {when}.",
        "{count} {noun}s were {did} {place}, and {count} were not.",
        "{name} could not {do} {thing} because {thing} was too {property}.",
        "they {did} {thing} {how}, then {did} {thing} again.",
        "{thing} near {thing} belongs to {name}.",
        "{name} wrote that {who} {did} {what} {when}.",
    ],
    "who": ["{name}", "{name}", "{name} and {name}", "{thing}", "somebody", "the others"],
    "what": ["{thing}", "{thing}", "{A} {noun}", "{A} {property} {noun}", "{thing} of {name}",
             "{thing} and {thing}", "everything {place}"],
    "thing": ["the {noun}", "the {noun}", "{described}"],
    "place": ["near {thing}", "behind {thing}", "under {thing}", "next to {thing}", "in {thing}",
              "beside {thing}", "outside", "upstairs", "on {thing}", "in front of {thing}"],
    "when": ["before noon", "after dinner", "at dawn", "in the evening", "on Monday", "on Friday",
             "last week", "the day before", "at about {hour}", "in spring", "for a while"],
    "how": ["by hand", "with care", "in a hurry", "without a word", "as always", "once more",
            "too late", "just in time", "for nothing", "on purpose"],
    "did_not": ["did not", "would not", "could not", "seemed to", "used to"],
    "hour": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
    "count": ["two", "three", "four", "five", "six", "seven", "some", "many", "most", "a few"],
}


class Prose:
    """An endless source of paragraphs for one document."""

    def __init__(self, draw, vocabulary):
        self._draw = draw
        self._cast = {kind: draw.sample(getattr(vocabulary, kind), n) for kind, n in CAST.items()}
        self._property_of = {noun: draw.pick(self._cast["adjectives"])
                             for noun in self._cast["nouns"]}

    def paragraph(self):
        """Some sentences on one line."""
        n = self._draw.between(*SENTENCES)
        return " ".join(self.sentence() for _ in range(n)) + "\n"

    def sentence(self):
        text = self._expand("{sentence}")
        text = re.sub(r"\{A\} (\w)", lambda m: words.article(m[1]) + " " + m[1], text)
        return text[0].upper() + text[1:]

    def _expand(self, template):
        return re.sub(r"\{([a-z_]+)\}", lambda match: self._replace(match[1]), template)

    def _replace(self, symbol):
        if symbol in GRAMMAR:
            return self._expand(self._draw.pick(GRAMMAR[symbol]))
        return getattr(self, "_" + symbol)()

    def _noun(self):
        return self._draw.pick(self._cast["nouns"])

    def _described(self):
        noun = self._noun()
        return f"the {self._property_of[noun]} {noun}"

    def _property(self):
        return self._draw.pick(self._cast["adjectives"])

    def _name(self):
        return self._draw.pick(self._cast["names"])

    def _do(self):
        return self._draw.pick(self._cast["verbs"])

    def _did(self):
        return words.past(self._do())

    def _do_move(self):
        return self._draw.pick(self._cast["moves"])

    def _moved(self):
        return words.past(self._do_move())
