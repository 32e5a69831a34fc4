/** The variables that a program needs to find its files, the network and its language. */
const passedOn = new Set([
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'SHELL',
  'TERM',
  'LANG',
  'LANGUAGE',
  'TMPDIR',
  'TZ',
  'NODE_EXTRA_CA_CERTS',
  'SSL_CERT_FILE',
  'SSL_CERT_DIR',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'ALL_PROXY',
  'NO_PROXY',
  'http_proxy',
  'https_proxy',
  'all_proxy',
  'no_proxy',
])

/**
 * The environment of a server: a few of our variables and its own. Our other variables are kept back, since they hold the keys of
 * models and other servers.
 */
export function serverEnvironment(own: Readonly<Record<string, string>> = {}): Record<string, string> {
  const environment: Record<string, string> = {}
  for (const [name, value] of Object.entries(process.env)) {
    if (value !== undefined && (passedOn.has(name) || name.startsWith('LC_'))) environment[name] = value
  }
  return { ...environment, ...own }
}
