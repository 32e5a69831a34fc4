import type { FastifyInstance, FastifyReply } from 'fastify'
import { peekFirst } from '../../../kit/index.ts'
import { jsonType, sendStream } from '../../rollouts/send-rollouts.ts'
import { aggregateMetricsReply } from './aggregate-metrics.ts'
import type { GymAgent } from './wire-scope.ts'

/** A larger body is counted on a thread: this much takes about a millisecond. */
const maxInlineBytes = 16 * 1024

/** What NeMo Gym asks of an agent. */
export function agentRoutes(scope: FastifyInstance, { base, name, agents, intake, cookies }: GymAgent): void {
  const { codec } = agents.get(name)
  const config = { gymCookies: cookies }
  scope.post(`${base}/aggregate_metrics`, { config }, async (request, reply) => {
    using body = await intake.read(request.raw)
    if (body.length <= maxInlineBytes) return await sendJson(reply, aggregateMetricsReply(body.bytes))
    // Before the reply begins: a body that does not fit is refused with its own status.
    await using chunks = await peekFirst(codec.aggregate(body.parts))
    reply.hijack()
    return await sendStream(reply.raw, { 'content-type': jsonType }, chunks)
  })
}

async function sendJson(reply: FastifyReply, text: string): Promise<FastifyReply> {
  return await reply.type('application/json').send(text)
}
