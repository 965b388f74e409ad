package config

// workspaceFactor is how many identities at their full rate make the rate of a
// workspace, if nobody has set one.
const workspaceFactor = 20

// CredentialRate is how much one credential or user may send per second; 0 is no
// limit.
func (c *Config) CredentialRate() (messages int64, bytes Size) {
	return follow(c.Rate.Credential.Messages, c.Rate.Messages, 1), follow(c.Rate.Credential.Bytes, c.Rate.Bytes, 1)
}

// WorkspaceRate is how much may be sent in one workspace per second; 0 is no
// limit.
func (c *Config) WorkspaceRate() (messages int64, bytes Size) {
	return follow(c.Rate.Workspace.Messages, c.Rate.Messages, workspaceFactor), follow(c.Rate.Workspace.Bytes, c.Rate.Bytes, workspaceFactor)
}

func follow[T int64 | Size](value, other T, factor T) T {
	if value >= 0 {
		return value
	}
	return other * factor
}
