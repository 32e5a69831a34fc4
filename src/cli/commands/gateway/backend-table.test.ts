import { expect, test } from 'vitest'
import { findModels, type FindModelsOptions } from '../../../serve/index.ts'
import { SimulatorServer } from '../../../simulator/index.ts'
import { createStyle } from '../../terminal/text.ts'
import { backendLines } from './backend-table.ts'

async function linesFor(options: Partial<FindModelsOptions>): Promise<string> {
  const found = await findModels({ backends: [], env: {}, signal: new AbortController().signal, ...options })
  return backendLines(found, { style: createStyle(false) }).join('\n')
}

test('a backend without token ids is marked as not usable for training', async () => {
  await using vllm = await SimulatorServer.start({ models: 'a' })
  await using openai = await SimulatorServer.start({ models: 'b', imitate: 'openai' })
  const lines = await linesFor({ backends: [vllm.url, openai.url] })
  expect(lines).toMatch(/ a +\S+ +ids, logprobs, prompt/)
  expect(lines).toMatch(/ b +\S+ +(none|only \w+): cannot be trained on/)
})

test('a model of the file has its own name, and a notice if its backend does not list it', async () => {
  await using simulator = await SimulatorServer.start({ models: 'one-with-a-long-name,two,three,four' })
  const backends = [{ url: simulator.url }]
  const models = {
    policy: { upstreamName: 'two', backends },
    answers: { upstreamName: 'two', api: 'responses' as const, backends },
    lost: { upstreamName: 'seven', backends },
  }
  const lines = await linesFor({ backends: [simulator.url], models })
  expect(lines).toMatch(/policy \(two\) +\S+ +ids/)
  expect(lines).toMatch(/answers \(two\) +\S+ +none in responses: cannot be trained on/)
  expect(lines).toContain('one-with-a-long-name, two, three and 1 more')
  expect(lines.match(/warning: .*/g)).toEqual([
    expect.stringContaining(`warning: ${simulator.url} is not used until it can be: ${simulator.url} answered 404`),
  ])
  expect(lines).toMatch(/unusable +lost \(seven\)/)
})
