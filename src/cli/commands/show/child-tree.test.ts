import { expect, test } from 'vitest'
import { emptyUsage } from '../../../schema/index.ts'
import { temporaryRuns } from '../../../testing/index.ts'
import { fakeProcess } from '../../../../test/support/cli/fake-terminal.ts'
import { writeRun, type WrittenRollout } from '../../../../test/support/cli/write-run.ts'
import { main } from '../../main.ts'

const call = { model: 'sim', backend: 'b', usage: { ...emptyUsage(), calls: 1 }, cost: 0, tries: 1, ms: 1, waitMs: 0 }

const reply = (...names: string[]) => ({
  message: {
    role: 'assistant' as const,
    content: names.length === 0 ? 'done' : null,
    ...(names.length > 0 && {
      tool_calls: names.map((name, index) => ({
        id: `c${index}`,
        type: 'function' as const,
        function: { name, arguments: '{}' },
      })),
    }),
  },
  meta: { call: { ...call, finishReason: 'stop' as const } },
})

/** An assistant message of the agent's own. */
const own = (...names: string[]) => ({ message: reply(...names).message })
const user = (content: string) => ({ message: { role: 'user' as const, content } })

const child = (id: string, parent = '0-0'): WrittenRollout => ({
  record: { id, reward: null, rewards: {}, turns: 2, toolCalls: 1 },
  parent,
})

async function shown(messages: WrittenRollout['messages'], children: readonly WrittenRollout[]): Promise<string[]> {
  await using runs = await temporaryRuns()
  const rollout = { record: { children: children.length }, ...(messages && { messages }) }
  writeRun({ root: runs.root, name: 'nightly', rollouts: [rollout, ...children] })
  const parts = fakeProcess({ env: { MILLRACE_RUNS: runs.root } })
  expect(await main(['show', 'nightly', '0-0'], parts)).toBe(0)
  return parts.stdout.text.split('\n')
}

/** The lines of calls and children, without times and tokens. */
const outline = (lines: readonly string[]): string[] =>
  lines.filter((line) => /[→↳]|^▌ assistant/.test(line)).map((line) => line.replace(/ {2,}\d.*ms.*$| ·.*$/, ''))

test('children are under the calls that asked for them, and others before the reply that followed', async () => {
  const lines = await shown(
    [user('Go.'), reply('search', 'read'), user('So?'), reply()],
    [
      child('0-0.t0-plan'),
      child('0-0.t1c1-x'),
      child('0-0.t1c0-y'),
      child('0-0.t1c0-y.t1c0-z', '0-0.t1c0-y'),
      child('0-0.t1-between'),
      child('0-0.t2-judge'),
    ],
  )
  expect(outline(lines)).toEqual([
    '  ↳ 0-0.t0-plan completed',
    '▌ assistant',
    '→ search {}',
    '  ↳ 0-0.t1c0-y completed',
    '    ↳ 0-0.t1c0-y.t1c0-z completed',
    '→ read {}',
    '  ↳ 0-0.t1c1-x completed',
    '  ↳ 0-0.t1-between completed',
    '▌ assistant',
  ])
  // One that was asked for after the last reply, by the reward.
  expect(lines.find((line) => line.startsWith('children'))).toContain('0-0.t2-judge completed · 2 turns, 1 tool call')
  expect(lines.find((line) => line.startsWith('outcome'))).toContain('6 children')
})

test('calls that the agent appended itself are counted on', async () => {
  const lines = await shown(
    [user('Go.'), own('first'), own('second'), reply()],
    [child('0-0.t0c1-b'), child('0-0.t0c0-a'), child('0-0.t0-plan')],
  )
  expect(outline(lines)).toEqual([
    '  ↳ 0-0.t0-plan completed',
    '▌ assistant',
    '→ first {}',
    '  ↳ 0-0.t0c0-a completed',
    '▌ assistant',
    '→ second {}',
    '  ↳ 0-0.t0c1-b completed',
    '▌ assistant',
  ])
})

test('calls in the text of a reply have their children behind it', async () => {
  const lines = await shown([user('Go.'), reply(), reply()], [child('0-0.t1c0-a'), child('0-0.t1c1-b')])
  expect(outline(lines)).toEqual(['▌ assistant', '  ↳ 0-0.t1c0-a completed', '  ↳ 0-0.t1c1-b completed', '▌ assistant'])
})

test('many children and deep levels are folded', async () => {
  const deep = ['0-0', '0-0.t1c0-a', '0-0.t1c0-a.t1c0-b', '0-0.t1c0-a.t1c0-b.t1c0-c']
  const lines = await shown(
    [user('Go.'), reply('look', 'look'), reply()],
    [
      ...deep.slice(1).map((id, index) => child(id, deep[index])),
      child(`${deep[3]}.t1c0-d`, deep[3]),
      child(`${deep[3]}.t1c0-e`, deep[3]),
      ...Array.from({ length: 11 }, (_, index) => child(`0-0.t1c1-${String(index).padStart(2, '0')}`)),
    ],
  )
  const listed = outline(lines)
  expect(listed.slice(2, 6)).toEqual([
    '  ↳ 0-0.t1c0-a completed',
    '    ↳ 0-0.t1c0-a.t1c0-b completed',
    '      ↳ 0-0.t1c0-a.t1c0-b.t1c0-c completed',
    '        ↳ 2 of its own',
  ])
  expect(listed.slice(-3)).toEqual(['  ↳ 0-0.t1c1-07 completed', '  ↳ 3 more', '▌ assistant'])
})
