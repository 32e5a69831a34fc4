import { describe, expect, test } from 'vitest'
import { chatMl, llama, stripping } from '../../test/support/tokens/chat-templates.ts'
import { seededRandom } from '../kit/index.ts'
import type { AssistantMessage, Message, ToolDefinition } from '../schema/index.ts'
import { TemplateBridge } from './bridge.ts'
import { ChatTemplate } from './chat-template.ts'

const bridgeOver = (source: string) => new TemplateBridge(new ChatTemplate({ source, variables: {} }))

const call = (id: string, written: string) => ({
  id,
  type: 'function' as const,
  function: { name: 'find', arguments: written },
})
const tools: readonly ToolDefinition[] = [
  { type: 'function', function: { name: 'find', parameters: { type: 'object' } } },
]

const question: Message = { role: 'user', content: 'Where?' }
const calling: AssistantMessage = {
  role: 'assistant',
  content: 'I look.',
  tool_calls: [call('c1', '{"a":1}'), call('c2', '{}')],
}
const results: readonly Message[] = [
  { role: 'tool', tool_call_id: 'c1', content: 'here' },
  { role: 'tool', tool_call_id: 'c2', content: 'there' },
]

describe('a bridge', () => {
  test('writes the end of the reply, what is new, and the beginning of the next reply', () => {
    const { text } = bridgeOver(stripping).after(calling, results, { tools })
    expect(text).toBe(
      '<|im_end|>\n<|im_start|>user\n<tool_response>\nhere\n</tool_response>\n<tool_response>\nthere\n</tool_response><|im_end|>\n<|im_start|>assistant\n',
    )
  })

  test('writes nothing of the reply itself, whatever it says', () => {
    const bridge = bridgeOver(chatMl)
    const texts = ['', ' \n', '<|im_end|>', '{{ messages }}', '</think>', 'MillraceStandInForTheReply'].map(
      (content) => bridge.after({ role: 'assistant', content }, [question], { tools: [] }).text,
    )
    expect(new Set(texts)).toEqual(new Set(['<|im_end|>\n<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n']))
  })

  test('adds to a conversation what a rendering of the whole adds, where the template keeps replies', () => {
    const bridge = bridgeOver(chatMl)
    const random = seededRandom(3)
    const messages: Message[] = [{ role: 'system', content: 'Be kind.' }, question]
    let text = bridge.whole(messages, { tools })
    for (let turn = 0; turn < 40; turn += 1) {
      const reply: AssistantMessage =
        random() < 0.5
          ? { role: 'assistant', content: `Turn ${turn} <b> "é" 🙂` }
          : { ...calling, content: `Call ${turn}` }
      const added: readonly Message[] = reply.tool_calls
        ? [...results, ...(random() < 0.3 ? [question] : [])]
        : [{ role: 'user', content: `${turn}? ${'x'.repeat(random() * 20)}` }]
      const before = text.length
      messages.push(reply)
      const written = bridge.beginning(messages, { tools }).slice(before, -bridge.close.length)
      text += written + (bridge.after(reply, added, { tools: [] }).text ?? 'none')
      messages.push(...added)
      expect(text).toBe(bridge.whole(messages, { tools }))
    }
  })

  test('is found where the template leaves out the text of a reply that calls', () => {
    const { text } = bridgeOver(llama).after(
      { role: 'assistant', content: 'I look.', tool_calls: [call('c1', '{"a":1}')] },
      [{ role: 'tool', tool_call_id: 'c1', content: 'here' }],
      { tools },
    )
    expect(text).toBe(
      '<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\nhere<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    )
  })

  test('is not made over a reply that was not sampled', () => {
    const { text, problem } = bridgeOver(chatMl).after(
      calling,
      [...results, { role: 'assistant', content: 'Mine.' }, question],
      { tools },
    )
    expect(text).toBeUndefined()
    expect(problem).toContain('a reply that the model did not write')
  })

  test('without new messages it ends the turn and begins the next', () => {
    expect(bridgeOver(chatMl).after({ role: 'assistant', content: 'a' }, [], { tools: [] }).text).toBe(
      '<|im_end|>\n<|im_start|>assistant\n',
    )
  })

  test('a message with a picture is refused by name', () => {
    const picture: Message = { role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }
    expect(() => bridgeOver(chatMl).after(calling, [picture], { tools: [] })).toThrow(/part of type image_url/)
  })
})
