/** The entry of a process's probe: one question a line, its number; one answer a line. */
import { Socket } from 'node:net'
import { nameBlockedMainThread } from '../kit/index.ts'
import { probeDescriptor, type ProbeAnswer } from './blocked-function-probe.ts'

const supervisor = new Socket({ fd: probeDescriptor })
supervisor.on('error', () => supervisor.destroy())
// The supervisor has gone. A main thread that is blocked would not notice, and go on for ever. Not on `end`, which does not
// come where the supervisor was killed before it had read the last answer: that is an error.
supervisor.on('close', () => process.kill(process.pid, 'SIGKILL'))
supervisor.on('data', (chunk) => {
  for (const line of chunk.toString().trim().split('\n')) void answer(Number(line))
})

async function answer(question: number): Promise<void> {
  const name = await nameBlockedMainThread(new AbortController().signal)
  const answered: ProbeAnswer = { question, ...(name !== undefined && { name }) }
  if (supervisor.writable) supervisor.write(`${JSON.stringify(answered)}\n`)
}
