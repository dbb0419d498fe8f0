"""Symptoms: their codes and commands are there, public reports of each are named, and words find them."""

import json
from pathlib import Path

import click
import pytest

import symptoms_document
from clockhands.auditing import CODES
from clockhands.cli import main
from clockhands.recognition.faults import FAULTS
from clockhands.recognition.symptoms import SYMPTOMS, found_by

INCIDENTS = Path(__file__).resolve().parents[1] / "incidents" / "incidents.json"


def test_codes_are_there_and_commands_have_their_options(cases):
    for symptom in SYMPTOMS:
        with cases(symptom.sees):
            assert not [code for code in symptom.codes if code not in CODES and code not in FAULTS]
            for line in symptom.commands:
                program, name, *words = line.split()
                command = main.get_command(click.Context(main), name)
                assert program == "clockhands"
                assert command is not None, line
                options = {option for parameter in command.params for option in parameter.opts}
                assert {word for word in words if word.startswith("--")} <= options, line


def test_each_report_is_an_incident_that_one_of_the_codes_names(cases):
    told = {each["id"]: each for each in json.loads(INCIDENTS.read_text(encoding="utf-8"))["incidents"]}
    for symptom in SYMPTOMS:
        for report in symptom.reported:
            with cases(symptom.sees, report):
                incident = told[report]
                assert {incident.get("finding"), *(incident.get("names") or ())} & set(symptom.codes)
    assert sum(bool(symptom.reported) for symptom in SYMPTOMS) >= len(SYMPTOMS) - 1


@pytest.mark.parametrize(
    ("words", "sees"),
    [
        ("gibberish past 4k", "right on short texts"),
        ("fine at batch 1, wrong with padding", "fine at batch 1"),
        ("conversion loses quality", "a converted model"),
        ("CUDA illegal memory access after 2048 tokens", "an index error"),
        ("images are described wrongly", "text is right"),
        ("wrong text after an image", "the text after an image"),
        ("answers get worse with each image", "the text after an image"),
        ("processor text after image is off", "the text after an image"),
        ("loss is NaN when I start finetuning", "training starts"),
        ("works in transformers but not in vllm", "right in one library"),
        ("kv cache decoding differs from the full pass", "one pass over the text"),
        ("tensor parallel gives other logits", "right on one device"),
    ],
)
def test_own_words_find_the_symptom(words, sees):
    texts = {each.sees: each.searched for each in SYMPTOMS}
    assert found_by([words], texts)[0].startswith(sees)


def test_text_after_an_image_is_looked_for_first_where_it_starts():
    after = next(each for each in SYMPTOMS if each.sees.startswith("the text after an image"))
    assert after.codes[0] == "offset-after-image"


def test_the_page_is_what_the_rows_make():
    written = symptoms_document.DOCUMENT.read_text(encoding="utf-8")
    assert written == symptoms_document.document(), "run `python tools/symptoms_document.py`"
