"""Write golden.jsonl: what the Hugging Face library makes of tokenizer.json (pip install tokenizers==0.23.3)."""
import json
import pathlib

from tokenizers import Tokenizer

here = pathlib.Path(__file__).parent
tok = Tokenizer.from_file(str(here / "tokenizer.json"))
texts = [
    "", " ", "\n", "\n\n", "a", "print(sum(map(int, input().split())))\n",
    "for i in range(10):\n    print(i)\n\n\n\tprint('x')  \r\n  \r\n", "n = int(input())  # it's they've IT'S THEY'LL 'ſ",
    "<|im_start|>user\nprint<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<tool_call>\n{\"name\": \"run_python\"}\n</tool_call><|im_end|><|endoftext|>", "<|im_end", "<<think>>", "<tool_response>12</tool_response>",
    "größte e\u0301 \u212b 数を 한국어 \u1100\u1161\u11a8 🙂👩‍👩‍👧", "a\u00a0b\u3000c\u0085d\ufeffe\u2028f", "x  y   z    ", "1234567 ½ Ⅷ ٣٤ x1y2",
    "!!!???...\n\n;;", "a" + "\u0301" * 40, "नमस्ते ไทย", "sumsumsum maxmax printprint", " \t \n \t x", "'s 'S 'd'll'Ll''re",
]
with open(here / "golden.jsonl", "w", encoding="utf-8") as out:
    for text in texts:
        ids = tok.encode(text, add_special_tokens=False).ids
        row = {"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "visible": tok.decode(ids, skip_special_tokens=True)}
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
