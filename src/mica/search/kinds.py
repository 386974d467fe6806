"""Kinds of things and some of their members: whoever is asked for "pets" said "dog" and "cat".

A short list of everyday English, not a dictionary: it only helps a second look, and a question that names no kind is
not touched by it. The words before a colon share the members after it.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

from mica.words import terms

KINDS = """
pet animal: dog puppy cat kitten hamster rabbit bunny parrot bird fish turtle snake lizard horse duck
sport team: basketball football soccer baseball tennis golf hockey volleyball rugby cricket badminton boxing karate
 swimming cycling surfing skiing snowboarding climbing skating gymnastics marathon bowling rowing
hobby activity pastime interest: painting drawing reading cooking baking gardening photography dancing singing knitting
 camping fishing hiking running swimming yoga chess puzzle pottery writing cycling climbing kayaking surfing gaming
 sewing woodworking meditation volunteering picnic museum concert
exercise workout fitness: gym yoga running jogging cycling swimming weights pilates cardio hiking stretching
instrument: piano guitar violin drums flute cello saxophone trumpet ukulele clarinet harp keyboard bass
music genre: song band album concert jazz rock pop classical blues folk metal rap singer playlist orchestra
game: chess monopoly cards puzzle scrabble poker nintendo playstation xbox console
country nation abroad: france italy spain germany england scotland ireland portugal greece turkey norway sweden finland
 denmark poland switzerland austria japan china india thailand vietnam indonesia korea australia canada mexico brazil
 argentina peru chile egypt morocco kenya africa iceland netherlands belgium
city town: london paris rome milan berlin munich madrid barcelona lisbon amsterdam vienna prague athens istanbul tokyo
 kyoto beijing shanghai singapore bangkok sydney melbourne toronto vancouver montreal chicago boston seattle miami
 denver austin dallas houston atlanta york francisco angeles vegas diego dublin edinburgh
state: california texas florida oregon washington colorado arizona nevada michigan ohio georgia virginia minnesota
 alaska hawaii montana utah massachusetts pennsylvania illinois
place location spot: park beach mountain lake forest museum gallery restaurant cafe city town trail river island garden
 zoo library theater stadium market hotel castle
book novel: author read series fantasy mystery story chapter library fiction memoir biography
movie film: cinema watch trilogy thriller comedy documentary actor theater director drama
show: series episode season sitcom
food snack cuisine ingredient: pizza pasta sushi salad soup burger bread cheese chicken beef fish curry rice noodle taco
 sandwich cake chocolate cookie steak egg
dish meal recipe: breakfast lunch dinner brunch pizza pasta sushi salad soup burger curry rice taco sandwich roast stew
dessert treat: cake cookie pie chocolate brownie pudding tart cupcake
drink beverage: coffee tea wine beer juice water cocktail smoothie soda
fruit: apple banana orange grape strawberry blueberry mango peach pear lemon
vegetable: carrot tomato potato onion pepper broccoli spinach lettuce cucumber
job profession occupation career: teacher nurse engineer doctor lawyer designer developer manager chef writer artist
 accountant intern hired promotion salary boss
family relative: mother father mom dad sister brother aunt uncle cousin grandma grandpa grandmother grandfather wife
 husband son daughter parent child
sibling: sister brother
parent: mother father mom dad
partner: girlfriend boyfriend wife husband fiance fiancee spouse
friend: buddy pal neighbor roommate colleague
color colour: red blue green yellow orange purple pink black white brown grey
vehicle transport: car bike bicycle truck bus motorcycle van scooter boat train plane subway taxi
trip travel vacation: trip travel vacation holiday journey visit flight tour cruise
health illness injury symptom: doctor hospital sick flu fever cough infection surgery pain hurt broke knee headache
 allergy medicine diet stress
emotion feeling mood: happy sad excited proud nervous anxious scared grateful stressed angry lonely
clothes clothing outfit: shirt dress jacket shoes boots jeans coat sweater hat
furniture: sofa couch table chair desk bed shelf lamp
device gadget: phone laptop tablet computer camera headphones watch speaker monitor console
education study: school college university degree class course graduate exam
language: english spanish french german italian japanese chinese portuguese korean russian arabic
holiday celebration: christmas easter thanksgiving halloween birthday anniversary wedding
art craft: painting drawing sculpture pottery gallery sketch canvas
plant flower: rose tulip orchid lily sunflower herb seed cactus tree
award achievement: prize trophy medal winner won champion certificate promotion
event: party concert festival wedding conference meeting ceremony workshop fundraiser tournament
error failure problem issue: exception traceback crash bug broken timeout refused
database store: sqlite postgres postgresql mysql redis mongodb
editor client agent: claude codex cursor copilot gemini opencode vim emacs vscode
"""


@cache
def members() -> dict[str, tuple[str, ...]]:
    """The term of a kind to the terms of its members."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for line in KINDS.strip().replace("\n ", " ").splitlines():
        heads, _, members = line.partition(":")
        for head in terms(heads):
            found[head].update(dict.fromkeys(term for term in terms(members) if term != head))
    return {head: tuple(members) for head, members in found.items()}
