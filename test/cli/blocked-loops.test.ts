import { temporaryRuns } from 'millrace/testing'
import { expect, it } from 'vitest'
import { fixture, millrace, objects } from '../support/cli/millrace-process.ts'

it.concurrent.each([[['--json']], [[]]])('a reward that blocks the loop is reported once, with %j', async (flags) => {
  await using runs = await temporaryRuns()
  const ended = await millrace({ cwd: runs.root }, 'eval', fixture('holds-up-the-loop.ts'), '-m', 'sim', ...flags)
  expect(ended.code, ended.stderr).toBe(0)
  expect(ended.stderr).toMatch(
    /^reward "slow" of holds-up blocked the loop, and every rollout on it, for .*s or more\. Make it offload\(…\)\.$/m,
  )
  expect(ended.stderr.match(/ blocked the loop/g)).toHaveLength(1)
  if (flags.length > 0) expect(objects(ended.stdout).at(-1)).toMatchObject({ type: 'summary', scored: 3 })
})
