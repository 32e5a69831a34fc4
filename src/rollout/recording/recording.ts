import { hash } from 'node:crypto'
import { z } from 'zod'
import { MillraceError, type WireError } from '../../errors/index.ts'
import type { RecordedSession } from '../../inference/index.ts'
import {
  type AssistantMessage,
  isJsonObject,
  type Json,
  type MessageNode,
  messageSchema,
  type ToolReports,
  type Usage,
  usageSchema,
} from '../../schema/index.ts'
import type { Journal } from '../../store/index.ts'
import type { ServerAnswer, ServerCall, ServerCalls, ToolCatalogue } from '../../tools/index.ts'
import { attemptEvent } from '../schedule/journal-entries.ts'

/** What a rollout and its children received, to be given again. A plain value that goes with the job. */
export interface Recording {
  /** `resume`: goes on after a cut. `fork`: begins as another rollout did. `replay`: hears nothing else. */
  readonly purpose: 'resume' | 'fork' | 'replay'
  /** By what a session's id adds to the rollout's: `''` for the rollout's own, `.t1-k3x9` for a child's. */
  readonly sessions: Readonly<Record<string, RecordedSession>>
  /** What the agents of the sessions heard of the reward before they ended, by the keys of `sessions`. */
  readonly verifications?: Readonly<Record<string, readonly RecordedVerification[]>>
  /** Of a rollout that only lacks its score: not all the code that reported its metrics and notes runs again. */
  readonly reported?: { readonly metrics: Record<string, number>; readonly notes: Record<string, Json> }
  readonly verdicts?: readonly RecordedVerdict[]
  /** Of a replay: what the tool servers answered to the environment's own code, in order. */
  readonly serverAnswers?: readonly RecordedAnswer[]
  readonly catalogues?: readonly ToolCatalogue[]
  /** Of a replay: the error for anything that was not recorded, such as a child or a verdict. */
  readonly end?: WireError
}

interface Recorded {
  readonly id: string
  readonly recording?: Recording
}

/** What is recorded of a session of the rollout; undefined if the session is live from its first turn on. */
export function recordedSession({ id, recording }: Recorded, session: string): RecordedSession | undefined {
  const recorded = recording?.sessions[session.slice(id.length)]
  if (recorded || !recording?.end) return recorded
  return { nodes: [], end: recording.end }
}

/** The recorded children that a session began in one place, with all below them, by what their ids add to the rollout's. */
export function childrenAt(
  { id, recording }: Recorded,
  session: string,
  idPart: string,
): readonly (readonly [key: string, child: RecordedSession])[] {
  if (!recording) return []
  const prefix = `${session.slice(id.length)}.${idPart}-`
  return Object.entries(recording.sessions).filter(([key]) => key.startsWith(prefix))
}

/** What a fork that was cut off goes on with: its own journal, followed by the rest of what it was forked from. */
export function continued(own: Recording, origin: Recording | undefined): Recording {
  if (!origin) return own
  const sessions = { ...origin.sessions, ...own.sessions }
  for (const [key, session] of Object.entries(own.sessions)) {
    const before = origin.sessions[key]
    if (!before || session.end) continue
    sessions[key] = { ...session, nodes: [...session.nodes, ...nodesAfter(session.nodes, before.nodes)] }
  }
  const verifications = { ...origin.verifications }
  for (const [key, heard] of Object.entries(own.verifications ?? {})) {
    verifications[key] = [...heard, ...(verifications[key] ?? []).slice(heard.length)]
  }
  return { ...own, sessions, verifications }
}

/** The nodes of the origin that come after as many replies, and answers to the last of them, as there are already. */
function nodesAfter(own: readonly MessageNode[], origin: readonly MessageNode[]): MessageNode[] {
  const repeated = own.filter(isReply).length
  const answered = own.slice(own.findLastIndex(isReply) + 1).filter(isAnswer).length
  let replies = 0
  let answers = 0
  return origin.filter((node) => {
    if (isReply(node)) {
      replies += 1
      answers = 0
    } else if (isAnswer(node)) answers += 1
    return replies > repeated || (replies === repeated && isAnswer(node) && answers > answered)
  })
}

export function isReply({ sampled, call }: MessageNode): boolean {
  return sampled && call !== undefined
}

function isAnswer({ tool, tools }: MessageNode): boolean {
  return (tool ?? tools) !== undefined
}

export const serverCallEvent = 'server-call'

/** What a server answered to one call: the data of a `server-call` event. */
export interface RecordedAnswer {
  /** The digest of the question; two calls of one digest are the same. */
  readonly request: string
  readonly answer: ServerAnswer
}

const answerSchema = z.object({
  request: z.string(),
  answer: z.object({
    content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]),
    isError: z.boolean(),
    detail: z.looseObject({ server: z.string() }),
  }),
})

export function answerOf(data: Json): RecordedAnswer | undefined {
  const given: unknown = data
  return isServerAnswer(given) ? given : undefined
}

function isServerAnswer(data: unknown): data is RecordedAnswer {
  return answerSchema.safeParse(data).success
}

interface RecordedServersParts {
  readonly journal: Pick<Journal, 'append'>
  readonly rollout: string
  readonly attempt: number
  /** The answers to be given again, in order. An answer that was given is taken out. */
  readonly recorded: RecordedAnswer[]
  readonly isForVerification?: boolean
}

/** Tool servers as an environment's own code calls them. Their answers are kept as events, for a replay. */
export class RecordedServers implements ServerCalls {
  readonly direct: ServerCalls
  readonly #parts: RecordedServersParts

  constructor(direct: ServerCalls, parts: RecordedServersParts) {
    this.direct = direct
    this.#parts = parts
  }

  /** The same servers for one agent, which hears when a call of its own waits for a server to be opened again. */
  withOnAway(onAway: NonNullable<ServerCall['onAway']>): RecordedServers {
    const direct: ServerCalls = { call: (server, call) => this.direct.call(server, { ...call, onAway }) }
    return new RecordedServers(direct, this.#parts)
  }

  /** The same servers for a verification, which asks none of them in a replay: it is heard again as a whole. */
  forVerification(): RecordedServers {
    return new RecordedServers(this.direct, { ...this.#parts, isForVerification: true })
  }

  async call(server: string, call: ServerCall): Promise<ServerAnswer> {
    const request = hash('sha256', JSON.stringify([server, call.tool, call.arguments]), 'base64url')
    const { journal, rollout, attempt, recorded: kept, isForVerification } = this.#parts
    const index = kept.findIndex((each) => each.request === request)
    const [recorded] = index === -1 ? [] : kept.splice(index, 1)
    const answer = recorded?.answer ?? (await this.direct.call(server, call))
    const of = { id: rollout, attempt }
    const noted = { request, answer, ...(isForVerification && ofVerification) }
    journal.append(attemptEvent(of, serverCallEvent, noted))
    return answer
  }
}

/** The servers without the notes, for calls that are recorded as messages. */
export function directServers(servers: ServerCalls): ServerCalls {
  return servers instanceof RecordedServers ? servers.direct : servers
}

export const judgeCallEvent = 'judge-call'

/** What a judge said to one question: the data of a `judge-call` event. */
export interface RecordedVerdict {
  /** The digest of the question; two questions of one digest are the same. */
  readonly request: string
  readonly model: string
  readonly reply: AssistantMessage
  readonly usage: Usage
  readonly cost: number | null
}

const verdictSchema = z.object({
  request: z.string(),
  model: z.string(),
  reply: messageSchema.refine((message) => message.role === 'assistant'),
  usage: usageSchema,
  cost: z.number().nullable(),
})

/** A recorded event as a verdict; undefined for an event that was recorded before questions were kept, or is no verdict. */
export function verdictOf(data: Json): RecordedVerdict | undefined {
  const parsed = verdictSchema.safeParse(data)
  if (!parsed.success) return undefined
  const { reply, ...rest } = parsed.data
  return reply.role === 'assistant' ? { ...rest, reply } : undefined
}

/** Marks a verdict, or a server's answer, that a verification asked for: the reward at the end must not take it for its own. */
export const ofVerification = { verification: true }

export function isOfVerification(data: Json): boolean {
  return isJsonObject(data) && data['verification'] === true
}

export const verificationEvent = 'verification'

/** What an agent heard of the reward before its end: the data of a `verification` event. */
export interface RecordedVerification {
  /** The last message of the conversation that was scored. */
  readonly at: number
  readonly reward: number
  readonly rewards: Readonly<Record<string, number>>
  readonly feedback?: string | undefined
  readonly reports?: ToolReports | undefined
  /** What judges have used for it. */
  readonly judged?: readonly Pick<RecordedVerdict, 'model' | 'usage' | 'cost'>[] | undefined
  /** It is in the journal of this very attempt, and must not be written there again. */
  readonly isJournalled?: boolean
}

const verificationSchema = z.object({
  at: z.int(),
  reward: z.number(),
  rewards: z.record(z.string(), z.number()),
  feedback: z.string().optional(),
  reports: z
    .object({
      metrics: z.record(z.string(), z.number()).exactOptional(),
      notes: z.record(z.string(), z.json()).exactOptional(),
    })
    .optional(),
  judged: z.array(verdictSchema.pick({ model: true, usage: true, cost: true })).optional(),
})

export function verificationOf(data: Json): RecordedVerification | undefined {
  return verificationSchema.safeParse(data).data
}

/** Verdicts to be given again, in order. With `repeats`, the last one is given for every further question. */
export class VerdictReader {
  readonly #verdicts = new Map<string, RecordedVerdict[]>()
  readonly #end: WireError | undefined
  readonly #repeats: boolean

  constructor(verdicts: readonly RecordedVerdict[], end: WireError | undefined, { repeats = false } = {}) {
    for (const verdict of verdicts) {
      const known = this.#verdicts.get(verdict.request)
      if (known) known.push(verdict)
      else this.#verdicts.set(verdict.request, [verdict])
    }
    this.#end = end
    this.#repeats = repeats
  }

  take(question: string): RecordedVerdict | undefined {
    const left = this.#verdicts.get(question)
    const verdict = this.#repeats && left?.length === 1 ? left[0] : left?.shift()
    if (!verdict && this.#end) throw MillraceError.fromWire(this.#end)
    return verdict
  }
}
