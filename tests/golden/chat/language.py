"""Small templates that go through the language: what conversations alone never reach.

language.txt is the golden of tests/runtime/chat/language_golden_test.cpp. crossed() has every
operator, filter, test and method with values of every kind; compare_peer.py --language runs both.
"""

import itertools
from pathlib import Path

import peer

MESSAGES = [
    {"role": "user", "content": "Hi \"you\"\n & <me>"},
    {"role": "assistant", "content": ["a", {"b": [1, 2.5, None, True]}], "name": "zoë"},
]
VARIABLES = {
    "text": "  One two,  three ÄÖ\n",
    "word": "abcabc",
    "numbers": [3, 1, 2, 10, -5],
    "items": [{"k": "b", "v": 1}, {"k": "a", "v": 2}, {"k": "B", "v": 1}, {"v": 3}],
    "table": {"b": 1, "a": [1, {"z": "y"}], "C": None},
    "n": 7,
    "x": 2.5,
    "yes": True,
    "nothing": None,
    "empty": "",
}

# One template a line; behind > the escapes \n, \t and \r are text.
CURATED = Path(__file__).parent / "language.txt"


def curated():
    for line in CURATED.read_text(encoding="utf-8").splitlines():
        text = line.removeprefix(">")
        yield peer.unescaped(text) if text != line else text


VALUES = r"""0 1 -3 2.5 1e20 true false none undefined_thing '' 'ab' 'Ab\u00e9\x20c' '12' '<&>' []
[1,2] ['b','a'] [[1,2],['x',3]] (1,) () {} {'b':1,'a':2} items table messages range(3)""".split()
OPERATORS = [*"+ - * / // % ** ~ == != < <= and or in".split(), "not in", "is sameas"]
FILTERS = """abs capitalize count d default default('x',true) e escape first float
format int items join join(',') last length list lower map('upper')|list max min
reverse reverse|list round safe select|list reject|list sort string sum title tojson
tojson(indent=2) trim unique|list upper dictsort indent replace('a','b') int(5) float(1)
map(attribute='a')|list selectattr('a')|list sort(attribute='a') batch(2)|list slice(2)|list
groupby('a') wordcount urlencode xmlattr pprint truncate(3) center(9) striptags forceescape
filesizeformat random|length attr('a')""".split()
TESTS = """defined undefined none boolean true false integer float number string mapping sequence
iterable callable odd even lower upper divisibleby(2) eq(1) ne(1) lt(2) gt(2) in([1,'ab'])
sameas(none) escaped filter test""".split()
METHODS = """split() split('b') split(',',1) rsplit('b',1) splitlines() strip() strip('ab') lstrip()
rstrip() rstrip('c') startswith('a') startswith(('a','b')) endswith('b') endswith('')
removeprefix('a') removesuffix('b') replace('a','x') replace('','-') find('b') rfind('b') index('b')
count('') count('b') join(['x','y']) format(1) partition('b') rpartition('b') lower() upper()
title() capitalize() isdigit() isdecimal() isnumeric() isalpha() isalnum() isspace() isupper()
islower() zfill(4) ljust(4) rjust(4) center(4) swapcase() casefold() encode() expandtabs() isascii()
istitle() get('b') get('q',1) keys() values() items() keys()|list values()|list items()|list
copy() pop() append(1) index(1) count(1) sort() clear() update({}) __len__() nope()""".split()
MORE_VALUES = r"""'a' '\x20a\x20b\x20' 'ΑΣ' 'ß' 'a\nb' '١' '½' '\u00a0' 'ǆ' 'e\u0301'""".split()
SLICES = """[0] [-1] [5] [1:] [:1] [::-1] [::2] [-1:] [1:-1] ['a'] .a .b [none] [1.0] [true]
[:]""".split()

CONVERSATION = MESSAGES, None, VARIABLES, True


def crossed():
    """Each operator, filter, test, method and slice with values of every kind."""
    for value in VALUES + MORE_VALUES:
        yield "{{ %s }}" % value
        yield "{{ [%s] }}" % value
        yield "{{ -%s }}" % value
        yield "{{ not %s }}" % value
        yield "{%% if %s %%}y{%% else %%}n{%% endif %%}" % value
        yield "{%% for a in %s %%}{{ a }},{%% endfor %%}" % value
        yield "{%% for a, b in %s %%}{{ a }},{{ b }};{%% endfor %%}" % value
        yield "{%% set z = %s %%}{{ z is defined }}{{ z }}" % value
        for name in FILTERS:
            yield "{{ (%s) | %s }}" % (value, name)
        for name in TESTS:
            yield "{{ (%s) is %s }}" % (value, name)
            yield "{{ (%s) is not %s }}" % (value, name)
        for name in METHODS:
            yield "{{ (%s).%s }}" % (value, name)
        for name in SLICES:
            yield "{{ (%s)%s }}" % (value, name)
    for (left, right), name in itertools.product(
        itertools.product(VALUES, VALUES), OPERATORS
    ):
        yield "{{ (%s) %s (%s) }}" % (left, name, right)
