import { shownUrl, type LimitChange } from '../../../inference/index.ts'
import { settleHeapForGateway } from '../../../kit/index.ts'
import {
  type ArealOptions,
  checkedPublicUrl,
  defaultTenant,
  findModels,
  GatewayServer,
  type ProbeResult,
  requireAdminKeys,
  requireOwnMachine,
  type GatewayConfig,
  type TenantKey,
} from '../../../serve/index.ts'
import { Logger } from '../../../telemetry/index.ts'
import type { Invocation } from '../../command-line/command.ts'
import { type FlagValues, definedFields } from '../../command-line/flags.ts'
import { defaultGatewayPort, type GatewayFlags } from './gateway-command.ts'
import type { ExitCode } from '../../terminal/exit-codes.ts'
import { readGatewayConfig } from './gateway-config-file.ts'
import { backendLines, tokensText } from './backend-table.ts'
import type { CommandIo } from '../../terminal/io.ts'
import { keyIn, usageError } from '../../command-line/flag-value.ts'
import { runsRoot } from '../../stored-runs/stored-run.ts'
import { ServerLifetime, type Served } from '../serve/server-lifetime.ts'

const defaultRun = 'gateway'
/** A start that is silent for longer looks stuck; a backend that hangs takes ten seconds. */
const slowMs = 2_000

type Flags = FlagValues<GatewayFlags>

export async function runGateway({ flags }: Invocation<GatewayFlags>, io: CommandIo): Promise<ExitCode> {
  settleHeapForGateway()
  if (flags.model !== undefined && !flags.backend) {
    throw usageError(
      '--model names the model of a --backend; add --backend, or name the model in the file of --config instead',
    )
  }
  const hasOtherBackends = flags.backend !== undefined
  const file = flags.config === undefined ? undefined : await readGatewayConfig(flags.config, io, { hasOtherBackends })
  const { config, secrets = [] } = file ?? {}
  const host = flags.host ?? config?.host ?? '127.0.0.1'
  const keys = keysOf(flags, config, io)
  const port = flags.port ?? config?.port ?? defaultGatewayPort
  const run = { root: runsRoot(flags.runs, io), name: flags.run ?? config?.run ?? defaultRun }
  // Checked before any backend is asked and any run is made.
  requireAdminKeys(host, keys)
  const nemoGym = flags['nemo-gym'] || config?.nemoGym
  if (nemoGym) requireOwnMachine(host)
  const publicUrl = flags['public-url'] ?? config?.publicUrl
  if (publicUrl !== undefined) checkedPublicUrl(publicUrl)
  await GatewayServer.requireFree({ host, port, run })
  await using logger = new Logger({ level: flags['log-level'] })
  using lifetime = new ServerLifetime(io, logger, 'gateway')
  try {
    const asking = setTimeout(() => logger.lines.info('probing the backends'), slowMs)
    const found = await findModels({
      backends: flags.backend ?? [],
      ...definedFields({ model: flags.model, models: config?.models }),
      defaults: definedFields({
        tokens: flags['exact-tokens'] ? ('exact' as const) : undefined,
        tokenizer: flags.tokenizer,
        routing: flags.routing,
      }),
      env: io.env,
      secrets: [...secrets, ...keys.map(({ key }) => key)],
      signal: lifetime.signal,
    }).finally(() => clearTimeout(asking))
    for (const line of backendLines(found, io.stdout, secrets)) void io.stdout.line(line)
    for (const result of found.probeResults) if (result.problem) logBackend(logger, result, secrets)
    await using server = await GatewayServer.open({
      ...found,
      ...(config && {
        aliases: config.aliases,
        hostedTools: config.hostedTools,
        whenPaused: config.whenPaused,
        allowBackends: config.allowBackends,
      }),
      pollBackends: !flags['no-poll'] && config?.pollBackends !== false,
      bounds: { ...config?.bounds, ...definedFields({ maxWaitMs: flags['max-wait'] }) },
      keys,
      secrets,
      host,
      publicUrl,
      nemoGym,
      areal: arealOf(flags, config),
      port,
      run,
      env: io.env,
      onRequest: (request) => logger.requestEnded(request),
      onAlarm: (session, alarms) => logger.lines.warn({ session, alarms }, 'a session ended without a usable record'),
      onFleetAlarm: (message) => logger.lines.warn(message),
      onDrift: (drift) => logger.lines.warn(drift, 'prompts do not begin with the tokens of the turn before'),
      onBackend: (result) => logBackend(logger, result, secrets),
      onLimitChange: (change) => logLimitChange(logger, change),
      onFault: (error) => logger.lines.error({ err: error }, 'a request failed'),
      signal: lifetime.signal,
    })
    const served: Served = {
      failure: server.failure,
      drain: () => server.drain(),
      loops: () => server.lag(),
      workers: () => [],
    }
    lifetime.begin(served, () => {
      logger.lines.info({ running: server.gateway.status().running }, 'draining: running requests may end')
    })
    // Each notice reports something that is lost, or that does not work as intended.
    for (const notice of server.notices) logger.lines.warn(notice)
    const { bold } = io.stdout.style
    if (server.madeKey !== undefined)
      void io.stdout.line(`admin key ${bold(server.madeKey)} (kept in the run's folder)`)
    void io.stdout.line(`gateway on ${bold(server.url)}`)
    return lifetime.exitCode(await lifetime.end())
  } catch (error) {
    return lifetime.exitCodeFor(error)
  }
}

function keysOf(flags: Flags, config: GatewayConfig | undefined, io: CommandIo): readonly TenantKey[] {
  const key = keyIn('admin-key-env', flags['admin-key-env'], 'MILLRACE_ADMIN_KEY', io)
  return [...(config?.keys ?? []), ...(key === undefined ? [] : [{ tenant: defaultTenant, key }])]
}

function arealOf(flags: Flags, config: GatewayConfig | undefined): ArealOptions | undefined {
  const { areal: written } = config ?? {}
  const asked = definedFields({ strict: flags['areal-strict'], tensors: flags['areal-tensors'] })
  if (!written && !flags.areal && Object.keys(asked).length === 0) return undefined
  return { ...(typeof written === 'object' && written), ...asked }
}

/** Logs a backend's new answer. A backend with a problem is asked again, but a person may have to act. */
function logBackend(
  { lines }: Logger,
  { backend: url, facts, problem, serves }: ProbeResult,
  secrets: readonly string[],
): void {
  const backend = shownUrl(url, secrets)
  if (!problem) {
    const models = facts.models.map(({ id }) => id)
    lines.info({ backend, kind: facts.kind, models, tokens: tokensText(facts, serves) }, 'a backend has answered')
    return
  }
  const fields = { backend, error: { code: problem.code, message: problem.rawMessage } }
  if (problem.retryable) lines.warn(fields, 'waiting for a backend')
  else lines.error(fields, 'a backend cannot be used')
}

/** Logs a backend that requests wait for, or that is back. Changes of concurrency are too frequent for a log. */
function logLimitChange({ lines }: Logger, { kind, model, why }: LimitChange): void {
  if (kind === 'parked') lines.warn({ model, why }, 'requests wait for a backend')
  else if (kind === 'released') lines.info({ model, why }, 'a backend is back')
}
