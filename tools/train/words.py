"""The words of the prose: one set for training documents, another for held-out ones.

No word stands in both sets, nor in the language of the facts (logbook.py); tests/tools/train checks
it. Verbs are regular, so that past() can make their past tense. The short function words of the
grammar (prose.py) are shared.
"""

from dataclasses import dataclass

DOUBLED = ("wrap", "scrub", "chat", "grin", "hum", "drip", "swap", "drag")


@dataclass(frozen=True)
class Words:
    """Nouns, adjectives, verbs with an object, verbs without one, people's names."""

    nouns: tuple
    adjectives: tuple
    verbs: tuple
    moves: tuple
    names: tuple


TRAIN = Words(
    nouns=tuple("""
        yard gate lamp stair window ladder bucket broom bench rope crate barrel cable hammer
        shovel helmet glove coat boot lunch kettle cup plate spoon table chair drawer shelf
        cupboard door key lock bell clock radio letter parcel stamp ledger pencil paper folder
        map chart wall roof floor corner corridor cellar attic garden hedge tree branch leaf
        puddle ditch road bridge river boat truck trailer wagon wheel engine horn mirror canvas
        curtain carpet candle match stove chimney smoke fire ash dust sand gravel brick tile
        plank nail screw lever chain hook pulley basket sack box bottle glass jar cloth towel
        soap brush paint varnish grease oil water rain storm cloud wind frost snow night morning
        shift crew guard driver cook painter visitor child neighbour dog cat horse bird mouse
        meeting holiday question mistake rumour song story
        """.split()),
    adjectives=tuple("""
        old new small large narrow wide quiet noisy warm cold dry wet clean dirty heavy light
        bright dark red green blue yellow grey white black broken cracked rusty wooden plain
        round flat steep crooked loose tight empty full open closed early late slow quick careful
        careless friendly tired cheerful gentle rough smooth sharp soft hard simple strange usual
        famous hidden borrowed forgotten painted polished spare second
        """.split()),
    verbs=tuple("""
        open close clean wash paint repair check move carry lift push pull turn count
        describe mention notice inspect collect deliver borrow return remove replace cover
        polish measure order sort stack store unload cross follow pass visit remember discover
        wrap label mark sign fill empty cool warm dry
        """.split()),
    moves=tuple("""
        wait rest work talk laugh smile listen arrive return remain vanish appear
        happen shake creak rattle whistle crumble float leak
        """.split()),
    names=tuple("""
        Alma Bruno Carla Dora Emil Frida Greta Hugo Irma Jonas Karla Leon Mina Nils Olga Paul
        Rita Stefan Tilda Ugo Vera Walter Xenia Yusuf Zora Anton Berta Conrad Edith Felix
        """.split()),
)

HELD = Words(
    nouns=tuple("""
        fence porch lantern staircase shutter pole tub mop stool cord trunk keg wire mallet spade
        cap mitten jacket sandal supper teapot mug bowl fork desk sofa chest rack pantry hatch
        bolt latch siren watch speaker postcard packet ticket notebook crayon envelope binder
        globe ceiling basement balcony meadow bush root petal pond trench lane tunnel creek canoe
        lorry cart pedal mast banner rug torch oven flue steam mud pebble slate beam rivet clamp
        """.split()),
    adjectives=tuple("""
        ancient modern tiny huge slim broad silent loud hot icy damp soaked spotless dusty dense
        shiny gloomy purple orange brown pink golden silver bent chipped mossy metal fancy square
        oval wobbly sturdy vacant crowded hasty lazy eager sleepy merry kind bumpy silky
        """.split()),
    verbs=tuple("""
        unlock fasten rinse decorate mend examine drag haul hoist rotate tally sketch
        discuss observe study gather present rent restore discard swap conceal scrub weigh
        request arrange pile approach trail
        """.split()),
    moves=tuple("""
        linger pause labour chat giggle grin doze eavesdrop land stay fade emerge tremble squeak
        hum drift drip
        """.split()),
    names=tuple("""
        Agnes Bjorn Clara Dimitri Elsa Fabian Gloria Henrik Ines Jasper Klara Ludwig Marta Norbert
        Oskar Petra Ralf Selma Theo Ulrike Viktor Wanda
        """.split()),
)


def past(verb):
    """The past tense of a regular verb."""
    if verb in DOUBLED:
        return verb + verb[-1] + "ed"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def article(word):
    """a or an."""
    return "an" if word[0] in "aeiou" else "a"
