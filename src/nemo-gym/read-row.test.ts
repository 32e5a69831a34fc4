import { expect, test } from 'vitest'
import { readRow } from './read-row.ts'

const add = {
  type: 'function',
  name: 'add',
  parameters: { type: 'object', properties: {} },
  strict: true,
  description: '',
}

test('a row gives messages, tools and sampling', () => {
  const { messages, tools, sampling } = readRow({
    responses_create_params: {
      input: [
        { role: 'developer', content: 'Be brief.' },
        { role: 'user', content: 'Add.' },
      ],
      instructions: 'Count.',
      tools: [add],
      temperature: 0.5,
      top_p: 0.9,
      max_output_tokens: 7,
      reasoning: { effort: 'high' },
      parallel_tool_calls: false,
      tool_choice: 'required',
      background: null,
      stream: null,
    },
    expected: 1,
  })
  expect(messages.map(({ role, content }) => [role, content])).toEqual([
    ['system', 'Count.'],
    ['developer', 'Be brief.'],
    ['user', 'Add.'],
  ])
  expect(tools.map((tool) => tool.function.name)).toEqual(['add'])
  expect(sampling).toEqual({
    temperature: 0.5,
    topP: 0.9,
    maxTokens: 7,
    reasoningEffort: 'high',
    extra: { parallel_tool_calls: false, tool_choice: 'required' },
  })
})

test('fields of the backend come from the metadata, which itself is not sent', () => {
  const metadata = { extra_body: '{"seed": 2}', chat_template_kwargs: '{"thinking": false}', origin: 'x' }
  const { messages, sampling } = readRow({ responses_create_params: { input: 'Go.', metadata } })
  expect(messages).toEqual([{ role: 'user', content: 'Go.' }])
  expect(sampling).toEqual({ extra: { seed: 2, chat_template_kwargs: { thinking: false } } })
})

test('calls, their results and a format of replies are read', () => {
  const { messages, sampling } = readRow({
    responses_create_params: {
      input: [
        { role: 'user', content: 'Add.' },
        { type: 'function_call', call_id: 'c', name: 'add', arguments: '{"n":9007199254740993}' },
        { type: 'function_call_output', call_id: 'c', output: 'ok' },
      ],
      text: { format: { type: 'json_schema', name: 'sum', schema: {}, strict: true } },
      parallel_tool_calls: false,
      tool_choice: 'none',
    },
  })
  expect(messages[1]).toMatchObject({ tool_calls: [{ function: { arguments: '{"n":9007199254740993}' } }] })
  expect(messages[2]).toEqual({ role: 'tool', tool_call_id: 'c', content: 'ok' })
  const json = { type: 'json_schema', json_schema: { name: 'sum', schema: {}, strict: true } }
  expect(sampling).toEqual({ extra: { response_format: json } })
})

test('fields without which nothing changes are named, and null is no field', () => {
  const params = { input: 'Go.', max_tool_calls: null, truncation: 'auto', include: ['web_search_call.results'] }
  const { dropped } = readRow({ responses_create_params: params })
  expect(dropped).toEqual(['include web_search_call.results', 'truncation auto'])
  expect(readRow({ responses_create_params: { input: 'Go.' } })).not.toHaveProperty('dropped')
})

test.each([
  [{}, 'the row has no `responses_create_params`'],
  [{ responses_create_params: {} }, 'responses_create_params: input must be a string or a list'],
  [{ responses_create_params: { input: 'x', tools: [{ type: 'web_search' }] } }, 'web_search cannot be asked'],
  [{ responses_create_params: { input: 'x', previous_response_id: 'r' } }, 'previous_response_id cannot be asked'],
  [{ responses_create_params: { input: 'x', max_tool_calls: 5 } }, 'max_tool_calls cannot be asked of every model'],
  [{ responses_create_params: { input: 'x', prompt: { id: 'p' } } }, 'prompt cannot be asked of every model'],
  [
    { responses_create_params: { input: 'x', foo: 1 } },
    'responses_create_params: NeMo Gym has no field `foo`; fields of the backend go into `metadata.extra_body`',
  ],
  [
    { responses_create_params: { input: 'x', max_ouput_tokens: 3 } },
    'NeMo Gym has no field `max_ouput_tokens`; did you mean `max_output_tokens`?',
  ],
  [
    { responses_create_params: { input: 'x', metadata: { extra_body: '[1]' } } },
    'responses_create_params: metadata.extra_body must',
  ],
])('what a model cannot be asked is refused: %j', (row, problem) => {
  expect(() => readRow(row)).toThrow(problem)
})
