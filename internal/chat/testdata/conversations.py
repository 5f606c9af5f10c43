"""Write conversations.jsonl: conversations and what the Transformers library renders (pip install transformers==5.24.0 jinja2)."""
import json
import pathlib
import random

from transformers.utils.chat_template_utils import _compile_jinja_template

here = pathlib.Path(__file__).parent
template = _compile_jinja_template((here.parent / "chat_template.jinja").read_text(encoding="utf-8"))
rng = random.Random(11)
bits = ["a", "\n", "\n\n", " ", "<think>", "</think>", "<think>\n", "\n</think>\n\n", "hello", "<tool_response>",
        "</tool_response>", "<tool_call>", "<|im_end|>", "\r\n", "é", "\t", "\u3000"]
arguments = [{"code": "print(1)\n", "stdin": ""}, '{"a": 1}', "raw", {}, [1, 2.50, 1e20], None, {"é": "<&>\u2028"}, 5, True]


def text():
    return "".join(rng.choice(bits) for _ in range(rng.randrange(7)))


def message():
    role = rng.choice(["user", "user", "assistant", "assistant", "tool", "system"])
    m = {"role": role, "content": text()}
    x = rng.random()
    if x < 0.07:
        m["content"] = None
    elif x < 0.1:
        m["content"] = [{"type": "text", "text": "x"}]
    elif x < 0.25 and role == "user":
        m["content"] = "<tool_response>" + text() + "</tool_response>"
    if role == "assistant" and rng.random() < 0.3:
        m["reasoning_content"] = rng.choice([text(), "", None, "think\n"])
    if role == "assistant" and rng.random() < 0.4:
        calls = [{"name": "run_python", "arguments": rng.choice(arguments)} for _ in range(rng.randrange(3))]
        m["tool_calls"] = [{"function": c} if rng.random() < 0.5 else c for c in calls]
    return m


with open(here / "conversations.jsonl", "w", encoding="utf-8") as out:
    i = 0
    while i < 80:
        row = {"id": f"random {i}", "messages": [message() for _ in range(rng.randrange(1, 7))],
               "tools": rng.choice([None, [], [{"type": "function", "function": {"name": "f", "x": [1, 1.5, None, "é<"]}}]]),
               "add_generation_prompt": rng.random() < 0.5, "enable_thinking": rng.choice([None, True, False])}
        extra = {} if row["enable_thinking"] is None else {"enable_thinking": row["enable_thinking"]}
        try:
            row["rendered"] = template.render(messages=row["messages"], tools=row["tools"],
                                              add_generation_prompt=row["add_generation_prompt"], **extra)
        except TypeError:  # the template adds a system content that is null to text
            continue
        i += 1
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
