import { describe, expect, test } from 'vitest'
import {
  chatMl,
  counting,
  endless,
  llama,
  numbering,
  opening,
  otherEnd,
  plain,
  stripping,
} from '../../test/support/tokens/chat-templates.ts'
import type { Json } from '../schema/index.ts'
import { ChatTemplate } from './chat-template.ts'
import { checkTemplate, type TemplateReport } from './check-template.ts'

const report = (source: string, variables: Readonly<Record<string, Json>> = {}): TemplateReport =>
  checkTemplate(new ChatTemplate({ source, variables: {} }), { variables })

const problemsOf = ({ turns }: TemplateReport) =>
  Object.fromEntries(turns.flatMap(({ kind, problem }) => (problem === undefined ? [] : [[kind, problem]])))

describe('the report on a template', () => {
  test.each([
    { name: 'ChatML', source: chatMl, close: '<|im_end|>\n', format: 'hermes', reasoning: 'dropped' },
    {
      name: 'a template that strips reasoning',
      source: stripping,
      close: '<|im_end|>\n',
      format: 'hermes',
      reasoning: 'dropped after the next user message',
    },
    {
      name: 'a template that opens reasoning',
      source: opening,
      close: '<|im_end|>\n',
      format: 'hermes',
      reasoning: 'dropped',
    },
  ])('$name continues every kind of turn', ({ source, close, format, reasoning }) => {
    const found = report(source)
    expect(problemsOf(found)).toEqual({})
    expect(found.turns).toHaveLength(5)
    expect(found.bridge.close).toBe(close)
    expect(found.toolFormat?.name).toBe(format)
    expect(found.respellsArguments).toBe(true)
    expect(found.reasoning.ofEarlierReplies).toBe(reasoning)
  })

  test('the tags of reasoning are found where the template writes them, or by their usual name', () => {
    expect(report(stripping).reasoning.markers).toEqual({ open: '<think>', close: '</think>' })
    expect(report(stripping.replaceAll('think>', 'seed:think>')).reasoning.markers).toEqual({
      open: '<seed:think>',
      close: '</seed:think>',
    })
    expect(report(opening).reasoning.markers).toEqual({ open: '<think>', close: '</think>' })
    expect(report(chatMl).reasoning.markers).toBeUndefined()
  })

  test('a template for single calls cannot continue parallel ones', () => {
    const found = report(llama)
    expect(Object.keys(problemsOf(found))).toEqual(['results of parallel calls'])
    expect(problemsOf(found)['results of parallel calls']).toContain('single tool-calls at once')
    expect(found.bridge.close).toBe('<|eot_id|>')
    expect(found.toolFormat?.name).toBe('llama')
  })

  test('a template that keeps arguments as a text does not spell them anew', () => {
    const source = chatMl.replace('call.function.arguments | tojson', `'{"text":"a b","count":2}'`)
    expect(report(source).respellsArguments).toBe(false)
  })

  test('a call that no format reads is said', () => {
    expect(report(chatMl.replace('<tool_call>\\n{"name": "', '<call>')).toolFormat).toBeUndefined()
  })

  test('a template that looks at earlier messages is continued with all of them', () => {
    expect(problemsOf(report(numbering))).toEqual({})
    expect(report(numbering).dependsOnHistory).toBe(true)
    expect(report(stripping).dependsOnHistory).toBe(false)
  })

  test('a turn that changes the beginning, or is written in two ways, is not continued', () => {
    expect(problemsOf(report(counting))['a user message']).toContain('changes the beginning')
    expect(problemsOf(report(otherEnd))['a user message']).toContain('rewrites a reply')
  })

  test('a template that refuses a message of the system in the middle says so for that turn alone', () => {
    const source = `{%- for message in messages %}{%- if message.role == 'system' and not loop.first %}{{- raise_exception('System message must be at the beginning.') }}{%- endif %}{%- endfor %}${chatMl}`
    expect(problemsOf(report(source))).toEqual({
      'a system message': expect.stringContaining('must be at the beginning') as string,
    })
  })

  test('variables take part in the check', () => {
    const { bridge } = report(stripping, { enable_thinking: false })
    const { text = '' } = bridge.after({ role: 'assistant', content: 'a' }, [{ role: 'user', content: 'b' }], {
      tools: [],
      variables: { enable_thinking: false },
    })
    expect(text).toBe('<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n')
  })

  test('a template that ends replies with nothing is unfit', () => {
    expect(() => report(endless)).toThrow('writes nothing after the text of a reply')
  })

  test('a template that cannot be parsed, or refuses a plain conversation, is unfit', () => {
    expect(() => report('{% if %}')).toThrow('cannot be parsed')
    expect(() => report(`{{- raise_exception('No.') }}`)).toThrow(/not possible with this chat template.*No\./)
  })

  test('a template without special tokens is fit as text: whether its end is a special token is up to the tokenizer', () => {
    expect(report(plain).bridge.close).toBe('\n')
  })
})
