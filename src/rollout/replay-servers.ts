import { hash } from 'node:crypto'
import { z } from 'zod'
import type { Journal, RunReader } from '../store/index.ts'
import type { ServerAnswer, ServerCall, ServerCalls } from '../tools/index.ts'
import { attemptEvent } from './event-entries.ts'

/** The name of the event that keeps what a server answered to an environment's own code. */
const serverCallEvent = 'server-call'

/** What a server answered to one call: the data of a `server-call` event. */
export interface RecordedAnswer {
  /** The digest of the question; two calls of one digest are the same. */
  readonly request: string
  readonly answer: ServerAnswer
  /** How many answers the rollout had from earlier sittings, which it asked for again; left out if none. */
  readonly earlier?: number
}

const answerSchema = z.object({
  request: z.string(),
  answer: z.object({
    content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]),
    isError: z.boolean(),
    detail: z.looseObject({ server: z.string() }),
  }),
  earlier: z.number().optional(),
})

/** What servers answered to an environment's own code in all sittings of an attempt, in order. */
export function readServerCalls(reader: RunReader, rollout: string, attempt: number): RecordedAnswer[] {
  const events: readonly { readonly data: unknown }[] = reader.eventsOf(rollout, attempt, serverCallEvent)
  return events.map(({ data }) => data).filter(isAnswer)
}

function isAnswer(data: unknown): data is RecordedAnswer {
  return answerSchema.safeParse(data).success
}

interface NotedParts {
  readonly journal: Pick<Journal, 'append'>
  readonly rollout: string
  readonly attempt: number
  /** The answers to be given again, in order. An answer that was given is taken out. */
  readonly recorded: RecordedAnswer[]
  /** How many answers earlier sittings of the attempt had left it. */
  readonly earlier?: number | undefined
}

/**
 * Tool servers as an environment's own code calls them: in `setup`, in rewards, in its tools. Their answers are kept as events,
 * so that a replay has them. Calls of the model are recorded as messages anyway, and use `direct`.
 */
export class NotedServers implements ServerCalls {
  readonly direct: ServerCalls
  readonly #parts: NotedParts

  constructor(direct: ServerCalls, parts: NotedParts) {
    this.direct = direct
    this.#parts = parts
  }

  /** The same servers for one agent, which hears when a call of its own waits for a server to be opened again. */
  heardBy(onAway: NonNullable<ServerCall['onAway']>): NotedServers {
    const direct: ServerCalls = { call: (server, call) => this.direct.call(server, { ...call, onAway }) }
    return new NotedServers(direct, this.#parts)
  }

  async call(server: string, call: ServerCall): Promise<ServerAnswer> {
    const request = hash('sha256', JSON.stringify([server, call.tool, call.arguments]), 'base64url')
    const { journal, rollout, attempt, recorded: kept, earlier } = this.#parts
    const index = kept.findIndex((each) => each.request === request)
    const [recorded] = index === -1 ? [] : kept.splice(index, 1)
    const answer = recorded?.answer ?? (await this.direct.call(server, call))
    const of = { id: rollout, attempt }
    journal.append(attemptEvent(of, serverCallEvent, { request, answer, earlier }))
    return answer
  }
}

/** The servers without the notes, for calls that are recorded as messages. */
export function directServers(servers: ServerCalls): ServerCalls {
  return servers instanceof NotedServers ? servers.direct : servers
}
