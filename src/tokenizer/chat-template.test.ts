import { expect, test } from 'vitest'
import { ChatTemplate } from './chat-template.ts'

const template = new ChatTemplate({ source: '{{- tools | tojson }}', variables: {} })
const parameters = { type: 'object', properties: { a: { type: 'number' } } }
const written = (fields: object): string => {
  const tools = [{ type: 'function' as const, function: { name: 'add', parameters, ...fields } }]
  return template.render({ messages: [], tools, addGenerationPrompt: false })
}

test('a tool is written in the same way, whatever API its client spoke', () => {
  const plain =
    '[{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]'
  expect(written({ description: 'Adds.' })).toBe(plain)
  expect(written({ description: 'Adds.', strict: false })).toBe(plain)
  expect(written({ strict: true, description: 'Adds.' })).toBe(`${plain.slice(0, -3)}, "strict": true}}]`)
  expect(written({})).not.toContain('description')
})
