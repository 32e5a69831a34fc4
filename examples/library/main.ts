/** A run as a call: watch it, read its rollouts as they end, and do something with the result. */
import assert from 'node:assert/strict'
import { evaluate, textOf } from 'millrace'

const run = evaluate({
  environment: 'arithmetic',
  options: { difficulty: 3 },
  model: { name: 'sim', simulator: { skill: 0.8, ttftMs: 20 } },
  attempts: 4,
  limit: 25,
  concurrency: 32,
  seed: 1,
})

// Rejects if a check before the first rollout fails: a wrong key, a module that does not load, a folder in use.
const { name, folder } = await run.started
console.log(`run ${name}`)

// `progress()` may be asked at any time; the live view of the command line is drawn from it.
const ticker = setInterval(() => {
  const { ended, total, score } = run.progress()
  console.log(`${ended} of ${total?.count ?? '?'} ended, mean reward ${score?.mean.toFixed(3) ?? '–'}`)
}, 100)

// Leaving the loop early would stop the run, and the same call would continue it.
const failed = []
for await (const rollout of run) {
  if (rollout.reward === 0) failed.push(rollout)
}
clearInterval(ticker)

const summary = await run.summary()
const { mean = Number.NaN, low = Number.NaN, high = Number.NaN } = summary.score ?? {}
console.log(`mean reward ${mean.toFixed(3)} (${low.toFixed(3)} to ${high.toFixed(3)}) over ${summary.scored} rollouts`)

const [first] = failed
const last = first?.messages.at(-1)
if (first && last) console.log(`${failed.length} were wrong, such as ${first.id}: ${textOf(last)}`)
console.log(`everything is in ${folder}`)

assert.equal(summary.rollouts, 100)
assert.equal(summary.outcomes.completed, 100)
assert.equal(summary.scored - failed.length, Math.round(mean * 100))
assert.ok(mean > 0.7 && mean < 0.95, `a skill of 0.8 should give a reward of about 0.8, not ${mean}`)
