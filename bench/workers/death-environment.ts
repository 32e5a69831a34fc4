import { appendFileSync } from 'node:fs'
import { defineEnvironment, z } from 'millrace'

const log = process.env['MILLRACE_BENCH_LOG']
if (log !== undefined) appendFileSync(log, `${process.pid}\n`)

/** In processes that note their ids, so that they can be killed. Nothing ever runs in it. */
export default defineEnvironment({
  name: 'mortal',
  isolation: 'process',
  task: z.object({}),
  tasks: () => [],
  prompt: () => 'go',
  reward: () => 1,
})
