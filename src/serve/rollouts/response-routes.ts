import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { responsesServer } from '../../apis/index.ts'
import type { Environment } from '../../env/index.ts'
import { MillraceError } from '../../errors/index.ts'
import type { BodyIntake } from '../http/body.ts'
import { JsonText } from '../requests/request-body.ts'
import type { Submission } from '../requests/request-intake.ts'
import { type AgentRequest, readAgentRequest } from './agent-request.ts'
import { episodeFailure, episodeResponse, sendEpisode, settledRecord } from './episode-response.ts'
import { streamEpisode } from './episode-stream.ts'
import { key } from './reply-schemas.ts'
import type { RolloutService } from './rollout-service.ts'
import { leaveWhenGone } from './send-rollouts.ts'
import type { ServedAgents } from './served-agents.ts'

/** A larger body is read on a codec thread. */
const maxInlineBytes = 64 * 1024

interface ResponseRouteParts {
  readonly base: '' | '/agents/:agent'
  readonly agents: ServedAgents
  readonly intake: BodyIntake
  /** Told of every reply with a status from 500 on. */
  readonly onFault: ((error: MillraceError) => void) | undefined
}

/** Agents as models of OpenAI's Responses, whose clients find errors in that API's shape. */
export function responseRoutes(app: FastifyInstance, { base, agents, intake, onFault }: ResponseRouteParts): void {
  app.register((scope, _options, done) => {
    scope.setErrorHandler(async (thrown, _request, reply) => {
      const error = MillraceError.from(thrown, 'internal')
      const { status, headers, body } = responsesServer.error(error)
      if (status >= 500) onFault?.(error)
      return await reply.code(status).headers(headers).send(body)
    })
    const api = {
      summary:
        'Asks the agent as if it were a model, in OpenAI’s Responses: the output is all that it did. No reward is computed.',
      key,
      vendorDocs: 'https://platform.openai.com/docs/api-reference/responses/create',
    }
    scope.post<{ Params: { agent?: string } }>(`${base}/v1/responses`, { config: { api } }, async (request, reply) => {
      await answerAsModel(request, reply, { service: agents.get(request.params.agent), intake })
    })
    done()
  })
}

/** Answers a request of Responses with a rollout of the service: an agent that is asked as if it were a model. */
export async function answerAsModel(
  request: FastifyRequest,
  reply: FastifyReply,
  { service, intake }: { readonly service: RolloutService; readonly intake: BodyIntake },
): Promise<void> {
  const asked = await readBody(request, intake, service)
  requireKnownTools(asked, service)
  const { repeated } = asked
  const submission = await submit(asked, service)
  if (asked.isStreamed) {
    await streamEpisode(reply, submission, { repeated, service })
    return
  }
  const { results } = submission
  using _leaving = leaveWhenGone(reply.raw, results)
  try {
    const { value: settled } = await results.next()
    if (!settled) return void reply.hijack()
    const record = settledRecord(settled, service)
    const failure = episodeFailure(record)
    if (failure) {
      // The rollout has had its tries: a client must not begin the same again by itself.
      reply.header('x-should-retry', 'false')
      throw failure
    }
    await sendEpisode(reply, episodeResponse(record, { repeated: JSON.stringify(repeated), form: 'items' }, service))
  } finally {
    results.release()
  }
}

async function submit({ task, sampling, messages }: AgentRequest, service: RolloutService): Promise<Submission> {
  try {
    return await service.submit({
      tasks: [new JsonText(task)],
      attempts: 1,
      scored: false,
      sampling,
      ...(messages.length > 0 && { messages }),
    })
  } catch (error) {
    if (!(error instanceof MillraceError) || error.code !== 'task_invalid') throw error
    const message = `${error.rawMessage}. The environment needs a task: send it as "task", beside "input"`
    throw new MillraceError('usage', message, { cause: error })
  }
}

async function readBody({ raw }: FastifyRequest, intake: BodyIntake, { codec }: RolloutService): Promise<AgentRequest> {
  using body = await intake.read(raw)
  return body.length <= maxInlineBytes ? readAgentRequest(body.bytes) : await codec.agentRequest(body.parts)
}

/** A client may repeat the agent's tools, but it cannot bring its own: the agent's calls never reach it. */
function requireKnownTools({ tools }: AgentRequest, { environment }: RolloutService): void {
  const foreign = foreignTools(tools, environment)
  if (foreign.length === 0) return
  const message = `the agent makes its calls itself, and has no tool ${foreign.join(', ')}: leave it out of tools`
  throw new MillraceError('usage', message)
}

/** Those that an environment certainly does not have: what its tool servers and `forTask` have is not known yet. */
export function foreignTools(names: readonly string[], environment: Environment): string[] {
  const { tools = {} } = environment
  return environment.mcpServers || environment.forTask ? [] : names.filter((name) => !Object.hasOwn(tools, name))
}
