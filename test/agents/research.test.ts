import { temporaryRuns } from 'millrace/testing'
import { expect, test } from 'vitest'
import { millrace, objects } from '../support/cli/millrace-process.ts'
import { openRun } from '../support/replay/stored-runs.ts'

const both = <Value>(value: Value): Value[] => [value, value]
const said = (words: readonly unknown[]): string => JSON.stringify(words)

test('an orchestrated task of over 300 calls is recorded, shown, exported and replayed as a whole tree', async () => {
  await using place = await temporaryRuns()
  const cwd = place.root
  const run = async (...words: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await millrace({ cwd, env: { MILLRACE_RUNS: cwd } }, ...words)
    expect(code, `millrace ${words.join(' ')}: ${stderr}`).toBe(0)
    return stdout
  }
  const lead = objects(
    await run('eval', 'research', '-m', 'sim', '--limit', '1', '--tokens', '--run', 'it', '--json', '--quiet'),
  ).find(({ type }) => type === 'rollout')
  expect(lead).toMatchObject({ outcome: 'completed', reward: 1, turns: 2, children: 2, toolCalls: 318 })
  expect(lead).toMatchObject({ usage: { calls: 38, captured: 38, laterTurns: 35 } })

  using reader = openRun(cwd, 'it')
  const children = reader.children('0-0')
  expect(children.map(({ end }) => end?.record)).toMatchObject(
    both({ outcome: 'completed', turns: 18, toolCalls: 158, children: 0 }),
  )
  const recorded = ['0-0', ...children.map(({ rollout }) => rollout)].map((id) => ({
    replies: reader.nodes(id, 1).filter(({ sampled }) => sampled).length,
    answers: reader.nodes(id, 1).filter(({ tool }) => tool?.status === 'ok').length,
  }))
  expect(recorded).toEqual([{ replies: 2, answers: 2 }, ...both({ replies: 18, answers: 158 })])

  // The agents stand under the calls that asked for them, and each can be read by itself.
  const shown = await run('show', 'it', '0-0')
  const names = ['historian', 'statistician']
  for (const [index, name] of names.entries()) {
    const { rollout = '' } = children[index] ?? {}
    const under = `→ ${name} \\{.*\\}\n {2}↳ ${rollout} completed · 18 turns, 158 tool calls · `
    expect(shown).toMatch(new RegExp(under))
    const own = await run('show', 'it', rollout)
    expect(own.match(/^→ \w+/gm), rollout).toHaveLength(158)
    expect(own).toContain(name === 'historian' ? '→ search_registers {"query":"Arden"}' : '→ search_yearbooks')
  }
  expect(shown).toContain('completed · 2 turns · 38 model calls · 318 tool calls · 2 children')

  const rows = objects(await run('export', 'it', '--rows', 'merged'))
  const last = rows.pop()
  expect(rows.map(({ session, parent, reward }) => said([session, parent, reward]))).toEqual([
    said(['0-0', null, 1]),
    ...children.map(({ rollout }) => said([rollout, '0-0', null])),
  ])
  expect(last).toMatchObject({ kind: 'end', sessions: 3, rows: 3, withoutTokens: 0 })
  const replies = objects(await run('export', 'it', '--rows', 'interactions'))
  expect(Object.values(Object.groupBy(replies, ({ session }) => String(session))).map((each) => each?.length)).toEqual(
    expect.arrayContaining([2, 18, 18]),
  )

  expect(await run('replay', 'it', '0-0')).toContain('identical')
})
