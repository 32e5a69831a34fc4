import { expect, test } from 'vitest'
import { ChatTemplate } from './chat-template.ts'

/** The content of a reply, written by an expression. */
function written(expression: string, content: string): string {
  const template = new ChatTemplate({ source: `{{- '[' + (${expression}) + ']' }}`, variables: {} })
  return template.render({ messages: [{ role: 'assistant', content }], tools: [], addGenerationPrompt: false })
}

const content = 'messages[0].content'

// The texts on the right are those of Python.
test.each([
  [`${content}.lstrip('\\n')`, '\n\n x \n', '[ x \n]'],
  [`${content}.rstrip('\\n')`, '\n x \n\n', '[\n x ]'],
  [`${content}.strip('\\n')`, '\n x \n', '[ x ]'],
  [`${content}.strip('<>🙂')`, '<🙂x<y🙂>', '[x<y]'],
  [`${content}.strip()`, ' \t\u0085\u001cx\u3000\n', '[x]'],
  [`${content}.strip()`, '\ufeffx\ufeff', '[\ufeffx\ufeff]'],
  [`${content} | trim`, ' \u0085x\n', '[x]'],
  [`${content} | trim`, '\ufeffx ', '[\ufeffx]'],
  [`${content}.split('</think>')[-1].lstrip('\\n')`, 'hm</think>\n\n  yes', '[  yes]'],
  [`messages[1] | trim`, 'x', '[]'],
])('%s of %j', (expression, given, expected) => {
  expect(written(expression, given)).toBe(expected)
})

test('a method that the template has defined itself keeps its name', () => {
  const template = new ChatTemplate({
    source: `{%- macro strip(text) %}{{- text ~ '!' }}{% endmacro %}{{- strip('a ') }}`,
    variables: {},
  })
  expect(template.render({ messages: [], tools: [], addGenerationPrompt: false })).toBe('a !')
})
