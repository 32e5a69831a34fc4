/** The model of test/fixtures/long-task.ts: it works its way through the calls and counts how many came out right. */
import { createServer } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { textOf, type AssistantMessage, type Message } from 'millrace'

interface PlannedCall {
  readonly tool: string
  /** Unlike that of any other call in a run; servers note it. */
  readonly key: string
  readonly arguments: Readonly<Record<string, string>>
}

interface Role {
  readonly agent: string
  readonly kind: string
  /** What the keys of its calls begin with. */
  readonly prefix: string
}

const parentPlan = { turns: 15, callsPerTurn: 7, delegatesAt: 7 }
const subAgentPlan = { turns: 20, callsPerTurn: 5 }

/** What the model says next: a function of the conversation alone, so that whoever asks again is told the same. */
export function nextMove(messages: readonly Message[]): AssistantMessage {
  const role = roleOf(messages)
  // Whoever asks before the run whether there is a model.
  if (!role) return { role: 'assistant', content: 'Here I am.' }
  const turn = messages.filter((message) => message.role === 'assistant').length
  const calls = plannedCalls(role, turn)
  if (calls.length === 0) return { role: 'assistant', content: `${rightAnswers(role, messages)} right` }
  return {
    role: 'assistant',
    content: null,
    tool_calls: calls.map(({ tool, key, arguments: given }) => ({
      id: key,
      type: 'function',
      function: { name: tool, arguments: JSON.stringify(given) },
    })),
  }
}

/** A call's key says whose it is: `<task>.<attempt>.<agent>.<turn>.<slot>`. */
function roleOf([opening]: readonly Message[]): Role | undefined {
  const said = opening ? textOf(opening) : ''
  const [, agent = '', kind = '', task, attempt] = /agent (\w+) of the (\w+) task (\d+), attempt (\d+)/.exec(said) ?? []
  return agent === '' ? undefined : { agent, kind, prefix: `${task}.${attempt}.${agent}` }
}

/** Nothing after the last turn. */
function plannedCalls({ agent, kind, prefix }: Role, turn: number): PlannedCall[] {
  const isParent = agent === 'parent'
  const { turns, callsPerTurn } = isParent ? parentPlan : subAgentPlan
  if (turn >= turns) return []
  const keyOf = (slot: number): string => `${prefix}.${turn}.${slot}`
  if (isParent && turn === parentPlan.delegatesAt) {
    return ['a', 'b'].map((name, slot) => ({ tool: 'delegate', key: keyOf(slot), arguments: { agent: name } }))
  }
  return Array.from({ length: callsPerTurn }, (_, slot) => {
    const tool = toolOf(slot, { isWriting: kind === 'writing', isParent })
    return { tool, key: keyOf(slot), arguments: { message: keyOf(slot) } }
  })
}

function toolOf(slot: number, { isWriting, isParent }: { isWriting: boolean; isParent: boolean }): string {
  if (isWriting && slot === 0) return 'echo'
  if (isWriting && isParent && slot === 1) return 'counter'
  return slot % 2 === 0 ? 'echo_read_only' : 'echo_idempotent'
}

/** What came back is what its call asked for; the counts are those of a process that served this attempt alone. */
function rightAnswers(role: Role, messages: readonly Message[]): number {
  const answers = new Map(
    messages.flatMap((message) => (message.role === 'tool' ? [[message.tool_call_id, textOf(message)] as const] : [])),
  )
  let counted = 0
  let right = 0
  for (let turn = 0; turn < parentPlan.turns + subAgentPlan.turns; turn += 1) {
    for (const { tool, key } of plannedCalls(role, turn)) {
      const answer = answers.get(key) ?? ''
      if (tool === 'counter') counted += 1
      if (tool === 'delegate') right += 1 + Number(/^(\d+) right$/.exec(answer)?.[1] ?? 0)
      else if (answer === (tool === 'counter' ? String(counted) : `Echo: ${key}`)) right += 1
    }
  }
  return right
}

/** The same over HTTP, for runs in other threads and processes. */
export interface ServedModel extends AsyncDisposable {
  readonly url: string
  /** Answers nobody until the function that it returns is called. */
  hold(): () => void
}

export async function serveLongTaskModel(): Promise<ServedModel> {
  let held: Promise<void> | undefined
  const server = createServer(async (request, response) => {
    // Whoever asks may be killed in the middle of it.
    const body = await text(request).catch(() => '')
    await held
    if (body === '') response.destroy()
    else response.setHeader('content-type', 'application/json').end(replyTo(body))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/v1`,
    hold() {
      const { promise, resolve } = Promise.withResolvers<void>()
      held = promise
      return resolve
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function replyTo(body: string): string {
  const { messages } = JSON.parse(body) as { messages: Message[] }
  const message = nextMove(messages)
  const finish_reason = message.tool_calls ? 'tool_calls' : 'stop'
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
  return JSON.stringify({ id: 'reply', choices: [{ index: 0, message, finish_reason }], usage })
}
