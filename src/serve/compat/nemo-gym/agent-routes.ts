import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { MillraceError, ownFaults } from '../../../errors/index.ts'
import { peekFirst, sleep } from '../../../kit/index.ts'
import type { BodyIntake } from '../../http/body.ts'
import type { SettledRollout } from '../../requests/active-request.ts'
import { JsonText } from '../../requests/request-body.ts'
import type { Submission } from '../../requests/request-intake.ts'
import { type EpisodeResponse, sendEpisode, settledRecord } from '../../rollouts/episode-response.ts'
import { answerAsModel, foreignTools } from '../../rollouts/response-routes.ts'
import type { RolloutService } from '../../rollouts/rollout-service.ts'
import { jsonType, leaveWhenGone, sendStream } from '../../rollouts/send-rollouts.ts'
import type { ServedAgents } from '../../rollouts/served-agents.ts'
import { aggregateMetricsReply } from './metrics/aggregate-metrics.ts'
import { failedReply, failureOf, type RunFailure, runReply } from './run-reply.ts'
import { decodeRow, type RunRow } from './run-row.ts'
import { notFoundReply, refusal } from '../fastapi/wire-errors.ts'
import type { UndeliveredRuns, WaitingClient } from './undelivered-runs.ts'
import { type GymAgent, sendWire, sessionOf } from './wire-scope.ts'

/** What is larger is read on a thread: so much takes about a millisecond. */
const maxInlineMetrics = 16 * 1024
const maxInlineRow = 64 * 1024
const roomPauseMs = 200

/** What NeMo Gym asks of an agent. */
export function agentRoutes(scope: FastifyInstance, parts: GymAgent): void {
  const { base, name, agents, intake, cookies, failures, runs } = parts
  const { codec, sessions } = agents.get(name)
  const options = {
    config: { gymCookies: cookies },
    // A session calls tools: one that a policy has called `run` is not there.
    onRequest: (request: FastifyRequest, reply: FastifyReply, next: () => void) => {
      if (sessions.has(sessionOf(request).id)) sendWire(reply, notFoundReply())
      else next()
    },
  }
  scope.post(`${base}/aggregate_metrics`, options, async (request, reply) => {
    using body = await intake.read(request.raw)
    if (body.length <= maxInlineMetrics) return await sendJson(reply, aggregateMetricsReply(body.bytes))
    // Before the reply begins: a body that does not fit is refused with its own status.
    await using chunks = await peekFirst(codec.aggregate(body.parts))
    reply.hijack()
    return await sendStream(reply.raw, { 'content-type': jsonType }, chunks)
  })

  const openAi = { ...options, config: { ...options.config, isOpenAi: true } } as const
  scope.post(`${base}/v1/responses`, openAi, async (request, reply) => {
    await answerAsModel(request, reply, { service: agents.get(name), intake }).catch((error: unknown) => {
      throw refusedBody(error)
    })
  })

  scope.post(`${base}/run`, options, async (request, reply) => {
    let row: RunRow | undefined
    let ended: EndedRow | undefined
    try {
      row = await readBody(intake, request.raw, codec)
      const service = base === '' ? agentFor(row, agents) : agents.get(name)
      ended = await runRow(reply, row, { service, runs })
    } catch (error) {
      if (failures === 'status' || (!row && isNoRow(error))) throw refusedRow(error)
      return await sendJson(reply, failedReply(row, failureBefore(error)))
    }
    return ended ? await sendEnded(reply, ended, failures) : void reply.hijack()
  })
}

async function readBody(
  intake: BodyIntake,
  request: Parameters<BodyIntake['read']>[0],
  codec: RolloutService['codec'],
): Promise<RunRow> {
  using body = await intake.read(request)
  return body.length <= maxInlineRow ? decodeRow(body.bytes) : await codec.row(body.parts)
}

/** The agent that a row names. Where there is only one, a configuration may call it as it likes. */
function agentFor({ agent }: RunRow, agents: ServedAgents): RolloutService {
  const { names } = agents
  if (names.length === 1) return agents.get()
  if (agent !== undefined) return agents.get(agent)
  const message = `the row names no agent, and this server has several: give it an agent_ref whose name is one of ${names.join(', ')}`
  throw new MillraceError('task_invalid', message)
}

/** A row whose rollout has a result that its client waits for. */
interface EndedRow {
  readonly row: RunRow
  readonly settled: SettledRollout
  readonly service: RolloutService
  readonly waiting: WaitingClient | undefined
}

type RunParts = Pick<GymAgent, 'runs'> & { readonly service: RolloutService }

/** Undefined if the client has left. */
async function runRow(reply: FastifyReply, row: RunRow, { service, runs }: RunParts): Promise<EndedRow | undefined> {
  if (row.problem) throw MillraceError.fromWire(row.problem)
  requireChosenTool(row, service)
  const waiting = row.key === undefined ? undefined : watchDelivery(reply, row.key, { service, runs })
  try {
    const { results } = await submit(row, waiting?.requestId, service)
    using _leaving = leaveWhenGone(reply.raw, results)
    using _release = { [Symbol.dispose]: () => results.release() }
    const next = await results.next()
    return next.done ? undefined : { row, settled: next.value, service, waiting }
  } catch (error) {
    // Closing, the server leaves its rollout to the next launch, where its client finds it.
    if (waiting && service.request(waiting.requestId)) waiting.left()
    throw error
  }
}

/** The tools of a row are only repeated, but its choice of one goes to the model, with the tools of the environment. */
function requireChosenTool({ chosenTool }: RunRow, { environment }: RolloutService): void {
  if (chosenTool === undefined || foreignTools([chosenTool], environment).length === 0) return
  const message = `tool_choice names ${chosenTool}, which is no tool of ${environment.name}: leave it out`
  throw new MillraceError('task_invalid', message)
}

async function sendEnded(
  reply: FastifyReply,
  { row, settled, service, waiting }: EndedRow,
  failures: GymAgent['failures'],
): Promise<void> {
  const record = settledRecord(settled, service)
  const failure = failures === 'status' ? failureOf(record) : undefined
  if (failure) throw failedRollout(failure)
  try {
    await sendWhenRoom(reply, () => runReply(row, record, service))
  } catch (error) {
    // The result is there, but its client does not get it: asked again, it is found.
    waiting?.left()
    throw error
  }
}

/** Whatever status its cause had elsewhere, such as a backend's 401. */
function failedRollout({ error: { code, message } }: RunFailure): MillraceError {
  return new MillraceError(code, message, { data: { status: 500 } })
}

/** A result that is there is never refused: while all threads that could write it are busy, its client waits. */
async function sendWhenRoom(reply: FastifyReply, write: () => EpisodeResponse): Promise<void> {
  while (!reply.raw.destroyed) {
    try {
      return await sendEpisode(reply, write())
    } catch (error) {
      if (!(error instanceof MillraceError) || error.code !== 'overloaded') throw error
      await sleep(roomPauseMs)
    }
  }
  reply.hijack()
}

/** The row is forgotten before its rollout is cancelled, so that nobody joins one that is about to end. */
function watchDelivery(reply: FastifyReply, key: string, { service, runs }: RunParts): WaitingClient {
  const waiting = waitFor(key, () => requestIdOf(key, service), { service, runs })
  const { raw } = reply
  // It may have gone while its row was being read.
  if (raw.destroyed) waiting.left()
  else raw.once('close', () => (raw.writableFinished ? waiting.delivered() : waiting.left()))
  return waiting
}

function waitFor(key: string, requestId: () => string, { service, runs }: RunParts): WaitingClient {
  return runs.wait(`${service.info.name}/${key}`, requestId, (id, isUndelivered) => {
    service.noteUndelivered(id, isUndelivered)
  })
}

/** What earlier launches have not delivered waits for its clients from now on, or from its end if it goes on. */
export function awaitClients(service: RolloutService, runs: UndeliveredRuns): void {
  for (const request of service.undelivered(idPrefix)) {
    const [key = ''] = request.id.slice(idPrefix.length).split('.', 1)
    const client = waitFor(key, () => request.id, { service, runs })
    const left = (): void => client.left()
    service.noteUndelivered(request.id, true)
    void service
      .results(request)
      .then(async ({ results }) => await results.next())
      .then(left, left)
  }
}

const idPrefix = 'nemo-gym.'

/** The same in every process, so that a row joins its rollout that an earlier launch has left to this one. */
function requestIdOf(key: string, service: RolloutService): string {
  for (let time = 1; ; time += 1) {
    const id = `${idPrefix}${key}.${time}`
    if (service.takes(id)) return id
  }
}

/** The task is what the dataset says of it. An environment that takes whole rows gets these. */
async function submit(row: RunRow, requestId: string | undefined, service: RolloutService): Promise<Submission> {
  const asked = {
    attempts: 1,
    sampling: row.sampling,
    ...(row.messages.length > 0 && { messages: row.messages }),
    ...(requestId !== undefined && { requestId }),
  }
  try {
    return await service.submit({ ...asked, tasks: [new JsonText(row.own)] })
  } catch (error) {
    if (!isMisfit(error)) throw error
    return await service.submit({ ...asked, tasks: [new JsonText(row.whole)] }).catch((second: unknown) => {
      // If neither fits, what is wrong with the first is what a user can act on.
      throw isMisfit(second) ? error : second
    })
  }
}

function isMisfit(error: unknown): error is MillraceError {
  return error instanceof MillraceError && error.code === 'task_invalid'
}

/** There is no object in the body, or no client any more: no row could be answered. */
function isNoRow(error: unknown): boolean {
  return error instanceof MillraceError && (error.data['status'] === 422 || error.code === 'cancelled')
}

/** As NeMo Gym says of a row that its verifier does not take. */
function refusedRow(error: unknown): unknown {
  return isMisfit(error) ? refusal({ type: 'value_error', loc: ['body'], msg: error.rawMessage, input: null }) : error
}

/** Mistakes in a body have the status that they have there. */
function refusedBody(error: unknown): unknown {
  if (!(error instanceof MillraceError) || error.code !== 'usage' || error.data['status'] !== undefined) return error
  return refusal({ type: 'value_error', loc: ['body'], msg: error.rawMessage, input: null })
}

/** A server that is full or about to end has done nothing for the row: it is not held against it. */
const passing: ReadonlySet<string> = new Set(['overloaded', 'closed'])

function failureBefore(thrown: unknown): RunFailure {
  const error = MillraceError.from(thrown, 'internal')
  const { code, rawMessage } = error
  const message = ownFaults[code] ?? rawMessage
  const isForNobody = passing.has(code)
  return {
    kind: code === 'usage' ? 'task_invalid' : code,
    error: { code, message },
    isTerminal: code === 'usage' || code === 'task_invalid',
    isForNobody,
  }
}

async function sendJson(reply: FastifyReply, text: string): Promise<void> {
  await reply.type('application/json').send(text)
}
