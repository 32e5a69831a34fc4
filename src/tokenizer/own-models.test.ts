import { expect, test } from 'vitest'
import { ChatTemplate } from './chat-template.ts'
import { checkTemplate } from './check-template.ts'
import { Tokenizer } from './tokenizer.ts'

const turns = `{%- for message in messages -%}
<|{{ message.role }}|>{{ message.content }}
{%- for call in message.tool_calls or [] -%}
[{{ call.function.name }}({% for name, value in call.function.arguments | items %}{{ name }}={{ value | tojson }}{% if not loop.last %}, {% endif %}{% endfor %})]
{%- endfor -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}`

test('calls that follow the generation prompt in the same line are found', () => {
  const { toolFormat, turns: kinds } = checkTemplate(new ChatTemplate({ source: turns, variables: {} }))
  expect(toolFormat?.name).toBe('pythonic')
  expect(kinds.filter(({ problem }) => problem !== undefined)).toEqual([])
})

test('a generation prompt that says more than the template writes of earlier replies does not hide the calls', () => {
  const source = turns
    .replace('<|assistant|>{%- endif', '<|assistant|><think>{%- endif')
    .replace('[{{ call', '{{ "\\n" }}[{{ call')
  const { toolFormat } = checkTemplate(new ChatTemplate({ source, variables: {} }))
  expect(toolFormat?.name).toBe('pythonic')
})

test('a tokenizer that lacks a part is an error of the configuration', () => {
  const tokenizer = { model: { type: 'BPE', vocab: { a: 0 }, merges: [] } }
  expect(() => new Tokenizer(tokenizer, {})).toThrow('tokenizer.json of the model cannot be used')
})
