// Applies the patch to a fresh copy of the repository and runs tests that the agent has not seen.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const { task, answer } = JSON.parse(readFileSync(0, 'utf8'))
const folder = mkdtempSync(join(tmpdir(), 'patch-'))
const succeeds = (command, words, input = '') => spawnSync(command, words, { cwd: folder, input }).status === 0

const tests = `
import assert from 'node:assert/strict'
import { seats, ticketsLeft } from './hall.mjs'
assert.equal(seats, ${task.rows * task.seats})
assert.equal(ticketsLeft(1), seats - 1)
assert.equal(ticketsLeft(seats + 1), 0)
`

try {
  cpSync('repository', folder, { recursive: true })
  writeFileSync(join(folder, 'hall.test.mjs'), tests)
  // A repository of its own: inside of another one, git would leave out what the patch changes.
  const isApplied = succeeds('git', ['init', '--quiet']) && succeeds('git', ['apply'], `${answer}\n`)
  const isResolved = isApplied && succeeds('node', ['hall.test.mjs'])
  console.log(isResolved ? 1 : 0)
} finally {
  rmSync(folder, { recursive: true })
}
