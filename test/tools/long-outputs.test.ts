import { join } from 'node:path'
import { defineEnvironment, evaluate, z, type Message } from 'millrace'
import { calls, ScriptedBackend, temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { RunReader } from '../../src/store/index.ts'

const book = Array.from({ length: 4_000 }, (_, line) => `line ${line}: ${line * line}`).join('\n')
const wanted = 'line 2024: 4096576'

const environment = defineEnvironment({
  name: 'long-outputs',
  task: z.object({}),
  tasks: () => [{}],
  prompt: () => `What does line 2024 say?`,
  toolOutput: { maxChars: 2_000, spill: true },
  tools: { read_book: { parameters: z.object({}), resume: 'reuse', run: () => book } },
  reward: ({ answer }) => Number(answer === wanted),
})

/** Reads on until it has seen the line, as the notes in the shortened outputs say. */
const script = ({ messages }: { messages: readonly Message[] }) => {
  const last = String(messages.at(-1)?.content)
  if (messages.at(-1)?.role === 'user') return calls({ read_book: {} })
  if (last.includes(wanted)) return wanted
  const named = messages.map(({ content }) => /"output": "([^"]+)"/.exec(String(content))?.[1]).find(Boolean)
  const offset = /"offset": (\d+)/.exec(last)?.[1] ?? /read on from offset (\d+)/.exec(last)?.[1]
  return calls({ read_tool_output: { output: named, offset: Number(offset) } })
}

test('a long output goes to a file of the run, and the agent reads it back', async () => {
  const backend = new ScriptedBackend(script)
  await using runs = await temporaryRuns()
  const evaluation = evaluate({
    environment,
    model: { name: 'scripted', backends: [{ url: 'http://scripted.invalid' }] },
    backends: { scripted: [backend] },
    preflight: false,
    limits: { maxTurns: 60 },
    run: { root: runs.root },
  })
  const [record] = await Array.fromAsync(evaluation)
  expect(record).toMatchObject({ outcome: 'completed', reward: 1, answer: wanted })
  for (const { messages } of backend.requests) {
    for (const { content } of messages) expect(String(content).length).toBeLessThanOrEqual(2_000)
  }
  const { folder } = await evaluation.summary()
  using reader = RunReader.open(folder)
  const shown = reader.nodes('0-0', 1).find(({ tool }) => tool?.name === 'read_book')
  expect(String(shown?.message.content)).toContain('to read them, call read_tool_output')
  const { readdir } = await import('node:fs/promises')
  expect(await readdir(join(folder, 'outputs', '0-0'))).toHaveLength(1)
})
