/** The entry of a process's probe. A question is a line with its number, an answer is a line, too. */
import { Socket } from 'node:net'
import { nameBlockedMainThread } from '../kit/index.ts'
import { probeDescriptor, type BlockedFunctionAnswer } from './blocked-function-probe.ts'

const supervisor = new Socket({ fd: probeDescriptor })
supervisor.on('error', () => supervisor.destroy())
// The supervisor has gone. A main thread that is blocked would not notice, and go on for ever. `end` would not do: it does
// not come if the supervisor was killed before it had read the last answer, which is an error.
supervisor.on('close', () => process.kill(process.pid, 'SIGKILL'))
supervisor.on('data', (chunk) => {
  for (const line of chunk.toString().trim().split('\n')) void answer(Number(line))
})

async function answer(question: number): Promise<void> {
  const name = await nameBlockedMainThread(new AbortController().signal)
  const answered: BlockedFunctionAnswer = { question, ...(name !== undefined && { name }) }
  if (supervisor.writable) supervisor.write(`${JSON.stringify(answered)}\n`)
}
