import { seededRandom } from '../../src/kit/index.ts'
import type { MessageNode } from '../../src/schema/index.ts'
import { AttemptRecorder, type JournalEntry } from '../../src/store/index.ts'
import { sampleRecord } from '../../test/support/cli/fake-evaluation.ts'
import { journalInto } from '../../test/support/gateway/random-session.ts'
import { applyAll } from '../../test/support/store/apply-entries.ts'
import { writeStoredRun } from '../../test/support/store/write-stored-run.ts'

export interface RunShape {
  readonly tasks: number
  readonly attempts: number
  readonly turns: number
  /** Of each rollout: the last prompt and its reply. */
  readonly tokens: number
}

const vocabulary = 150_000
const repliesShare = 0.5

/** A run of rollouts with tokens as an evaluation leaves it: two messages, then replies with a call, each with its result. */
export function writeRolloutRun(folder: string, shape: RunShape): void {
  const config = { environment: { name: 'bench', specifier: null, options: {} }, model: 'policy', captureTokens: true }
  const run = { name: 'rows', configDigest: 'digest', config, provenance: {} }
  writeStoredRun(folder, run, [], { state: 'complete', end: 'complete' })
  for (let task = 0; task < shape.tasks; task += 1) {
    const entries: JournalEntry[] = [{ kind: 'task', index: task, id: `task-${task}`, digest: `d${task}`, row: '{}' }]
    for (let sample = 0; sample < shape.attempts; sample += 1) entries.push(...rolloutEntries(task, sample, shape))
    applyAll(folder, entries)
  }
}

function rolloutEntries(task: number, sample: number, { attempts, turns, tokens }: RunShape): JournalEntry[] {
  const random = seededRandom(task * attempts + sample)
  const rollout = `${task}-${sample}`
  const reward = random() < 0.6 ? 1 : 0
  // A record is stored without its messages.
  const { messages: _messages, ...record } = sampleRecord({
    id: rollout,
    task: { index: task, id: `task-${task}` },
    sample,
    reward,
    rewards: { correct: { score: reward, weight: 1 } },
    turns,
  })
  const entries: JournalEntry[] = [
    { kind: 'attempt-start', rollout, attempt: 1, parent: null, task, sample, at: firstStart },
  ]
  const nodes = rolloutNodes(random, turns, tokens)
  const recorder = new AttemptRecorder(journalInto(entries), rollout, 1)
  for (const node of nodes) recorder.node(node, JSON.stringify(node.message))
  const result = { outcome: record.outcome, reward, record: JSON.stringify(record), leaf: nodes.length - 1 }
  const messages = nodes.map(({ message }) => JSON.stringify(message))
  entries.push({ kind: 'rollout-end', rollout, attempt: 1, task, sample, at: firstStart, ...result, messages })
  return entries
}

const firstStart = 1_700_000_000_000

function rolloutNodes(random: () => number, turns: number, tokens: number): MessageNode[] {
  const nodes: MessageNode[] = []
  const add = (parts: Pick<MessageNode, 'message' | 'sampled'> & Partial<MessageNode>): void => {
    const seq = nodes.length
    nodes.push({ seq, parent: seq === 0 ? null : seq - 1, hash: `hash-${seq}`, at: firstStart + seq, ...parts })
  }
  const newIds = (count: number): number[] =>
    Array.from({ length: count }, () => Math.floor(random() ** 3 * vocabulary))
  const perReply = Math.floor((tokens * repliesShare) / turns)
  const perResult = Math.floor((tokens - perReply * turns) / (turns + 1))
  const first = tokens - turns * perReply - (turns - 1) * perResult
  add({ message: { role: 'system', content: 'You work with tools. '.repeat(20) }, sampled: false })
  add({ message: { role: 'user', content: 'Do what the task says. '.repeat(10) }, sampled: false })
  const seen = newIds(first)
  for (let turn = 0; turn < turns; turn += 1) {
    const ids = newIds(perReply)
    const usage = { calls: 1, input: seen.length, cachedInput: 0, output: ids.length, reasoning: 0, captured: 1 }
    const finishReason = turn + 1 < turns ? 'tool_calls' : 'stop'
    const call = { model: 'policy', backend: 'b1', usage, cost: 0, tries: 1, ms: 1200.5, waitMs: 0.2 } as const
    const callId = `call-${turn}`
    const lookUp = { name: 'look_up', arguments: JSON.stringify({ query: 'words '.repeat(40) }) }
    add({
      message: {
        role: 'assistant',
        content: 'I look it up. '.repeat(4),
        ...(finishReason === 'tool_calls' && { tool_calls: [{ id: callId, type: 'function', function: lookUp }] }),
      },
      sampled: true,
      call: { ...call, finishReason, replyId: `chatcmpl-${turn}`, sampling: { temperature: 1, topP: 0.95 } },
      tokens: {
        promptIds: Int32Array.from(seen),
        ids: Int32Array.from(ids),
        logprobs: Float32Array.from(ids, () => -random() * 3),
        version: '7',
      },
    })
    if (turn + 1 === turns) break
    const tool = { name: 'look_up', status: 'ok', ms: 3.25 } as const
    add({ message: { role: 'tool', tool_call_id: callId, content: 'a found line\n'.repeat(20) }, sampled: false, tool })
    seen.push(...ids, ...newIds(perResult))
  }
  return nodes
}
